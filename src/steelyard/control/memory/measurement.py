"""Measurements of devices, servers and models, and what they change in the ledger."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ...core.memory.ledger import MemoryLedger
from ...protocols.load import EngineLoad
from .device_replicas import LOADED_STATES, DeviceReplica, DeviceReplicas, held_bytes, is_idle
from .footprint import LoadDifference
from .meters.devices import MeterReading
from .model_sizing import ModelSizing
from .monitored_device import MonitoredDevice

REPORT_LAG_SECONDS = 1.5  # a server's report of its device may be so old
MAX_SAMPLES = 8  # of what is ours
SERVER_REPORT_TTL_SECONDS = 10.0  # for which a server's own report outweighs what others saw


class MemoryMeasurement:
    def __init__(self, ledger: MemoryLedger, holders: DeviceReplicas, sizings: Mapping[str, ModelSizing]) -> None:
        self._ledger = ledger
        self._holders = holders
        self._sizings = sizings
        self._ours: dict[str, deque[tuple[float, int, int]]] = {}  # device → when, surely, possibly

    def sample(self, devices: Mapping[str, MonitoredDevice], now: float) -> None:
        """What is ours now: measurements arrive a while later, and requests come and go meanwhile."""
        for name in [name for name in self._ours if name not in devices]:
            del self._ours[name]
        for name, watched in devices.items():
            history = self._ours.setdefault(name, deque(maxlen=MAX_SAMPLES))
            history.append((now, *self._holders.own_usage(watched.device)))

    def load_reported(self, holder: DeviceReplica, watched: MonitoredDevice, load: EngineLoad, now: float) -> None:
        if load.held is not None or load.base is not None:
            for each in self._holders.at(holder.place.server):
                each.measured = each.resident and (each.measured or each.state in LOADED_STATES)
        if load.held is not None:
            self._ledger.set_measured(holder.place, int(load.held))
        if load.base is not None:
            holder.base_reported_at, holder.reports_base = now, True
            self._ledger.set_measured_idle(holder.place, int(load.base))
        if not self._is_its_server(holder):
            self._compare_server(holder, load, now)
        elif load.base is not None:
            self.base_reported(holder, int(load.base), now)
        if watched.load_reported(holder.key, load, now):
            self._compare(watched, now - REPORT_LAG_SECONDS, now)
        self._write(watched)

    def base_reported(self, holder: DeviceReplica, base: int, now: float) -> None:
        """What its server holds idle: the model's footprint, where both come and go together."""
        if holder.state in LOADED_STATES and self._is_its_server(holder):
            self.footprint_measured(holder, base, now)

    def _is_its_server(self, holder: DeviceReplica) -> bool:
        """Not with several models, nor with one on demand, which goes while its server stays."""
        return len(holder.place.server.residencies) == 1 and not holder.on_demand

    def _compare_server(self, holder: DeviceReplica, load: EngineLoad, now: float) -> None:
        said = load.base if holder.reports_base else load.held
        if said is not None:
            idle = holder.reports_base or is_idle(holder.place.server, self._ledger.cells)
            self._weigh_by(holder, holder.of_server, int(said), idle, now, now)

    def reading_taken(self, watched: MonitoredDevice, look: MeterReading, began: float, now: float) -> None:
        if watched.reading_taken(look, now):
            self._compare(watched, began, now)
        self._write(watched)

    def footprint_measured(self, holder: DeviceReplica, amount: int, now: float) -> None:
        footprint = self._sizings[holder.model].footprint
        before = footprint.value
        footprint.observe(holder.key[1], amount, now)
        if footprint.value != before:
            self._holders.rebase(holder.model)

    def _compare(self, watched: MonitoredDevice, began: float, now: float) -> None:
        """A device's use, with what is ours and with what was in use before a model came."""
        device, used = watched.device, watched.used or 0
        surely, possibly = self._holders.own_usage(device)
        for when, least, most in self._ours.get(watched.name, ()):
            if when >= began:
                surely, possibly = min(surely, least), max(possibly, most)
        watched.external.sample(used, surely, possibly)
        idle = self._ledger.cells.count(device.index) == 0
        self._correct(watched, watched.overcount.sample(used, surely, idle))
        for holder in self._holders.on(device):
            if now - holder.base_reported_at > SERVER_REPORT_TTL_SECONDS:
                self._weigh_by(holder, holder.of_device, used, idle, began, now)

    def _correct(self, watched: MonitoredDevice, over: int) -> None:
        """So much less is in use than counted: most likely of the model most above its declaration."""
        cells = self._ledger.cells
        there = [
            h.model
            for h in self._holders.on(watched.device)
            if h.state in LOADED_STATES and not held_bytes(h.place.server, cells)
        ]
        model = max(there, key=lambda model: self._sizings[model].footprint.excess, default="")
        if over and model:
            self._sizings[model].footprint.lower(over // there.count(model))
            self._holders.rebase(model)

    def _weigh_by(
        self, holder: DeviceReplica, difference: LoadDifference, used: int, idle: bool, began: float, now: float
    ) -> None:
        """A difference that requests may have distorted counts only if nothing else is known."""
        server, device = self._holders.neighbour_changes(holder)
        difference.other_replicas_changed(device if difference is holder.of_device else server)
        found = difference.sample(used, idle, began, announced=holder.on_demand)
        footprint = self._sizings[holder.model].footprint
        if found is not None and (difference.clean or not footprint.value):
            self.footprint_measured(holder, footprint.believed(found) if difference is holder.of_device else found, now)

    def _write(self, watched: MonitoredDevice) -> None:
        watched.device.capacity = watched.capacity
        self._ledger.cells.external[watched.device.index] = watched.external_usage
