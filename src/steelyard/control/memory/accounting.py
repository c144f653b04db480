"""Memory of all devices: what models, servers and external processes hold goes into the ledger that workers share;
capacities, request sizes and quarantines go to the workers."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...config import Config
from ...core.memory.ledger import MemoryLedger
from ...core.replica import State
from ...core.request import INFINITY
from ...link.messages import Apply, DeviceCapacities, OutOfMemory, ReservationsAdopted, ToWorker, WorkerReport
from ...link.shared_ledger import SharedLedger
from ...protocols.load import EngineLoad
from ...units import format_size
from ..fleet.observer import FleetControl, FleetObserver
from ..fleet.registry import ReplicaKey
from ..observability.views import Alarm, DeviceView, ModelMemoryView
from .device_replicas import DeviceReplicas
from .measurement import SERVER_REPORT_TTL_SECONDS, MemoryMeasurement
from .meters.poller import MeterPoller
from .model_sizing import ModelSizing
from .monitored_device import MonitoredDevice
from .orphaned_reservations import OrphanedReservations
from .quarantines import Quarantines
from .views import ActiveAlarms, device_view, find_alarms, is_over, sizes_view

MAX_LEARNED_PER_TICK = 48  # samples of all models: each may take a millisecond
UNLIMITED_BYTES = 1 << 62  # free memory of a device of unknown size
LOG_INTERVAL_SECONDS = 1.0  # in the event log, of one model that runs out of memory on one device


class MemoryAccounting(FleetObserver):
    def __init__(self, fleet: FleetControl, shared_ledger: SharedLedger, *, meters: MeterPoller | None = None) -> None:
        self._fleet = fleet
        self._ledger = MemoryLedger(shared_ledger)
        self._meters = meters or MeterPoller()
        self._watched: dict[str, MonitoredDevice] = {}
        self.sizings: dict[str, ModelSizing] = {}
        self._holders = DeviceReplicas(self._ledger, self.footprint)
        self._measuring = MemoryMeasurement(self._ledger, self._holders, self.sizings)
        self._orphans = OrphanedReservations(shared_ledger)
        self._quarantines = Quarantines()
        self._alarms = ActiveAlarms()
        self._capacities: dict[str, int] = {}  # last known, by device
        self._noted: dict[tuple[str, str], float] = {}  # model, device → when it last ran out, in the event log

    def members_changed(self, active: Apply, now: float) -> None:
        config = active.config
        self._know(config, active.devices, now)
        counted = {name: m for name, m in config.models.items() if any(r.device in self._watched for r in m.replicas)}
        for name in [name for name in self.sizings if name not in counted]:
            del self.sizings[name]
        for name, model in counted.items():
            self.sizings.setdefault(name, ModelSizing(name, model.memory)).declare(model.memory)
        self._holders.follow(config, active.columns, now)
        for name, model in counted.items():
            self.sizings[name].footprint.keep({replica.name for replica in model.replicas})
            self._holders.rebase(name)
        self._quarantines.keep(set(counted), set(self._watched))
        self._noted = {key: when for key, when in self._noted.items() if key[1] in self._watched}
        self._broadcast_changes(now)

    def _know(self, config: Config, devices: Mapping[str, int], now: float) -> None:
        named = {name: config.devices[name] for name in devices if name in config.devices}
        self._meters.set_devices(named, now)
        for name in [name for name in self._watched if name not in named]:
            del self._watched[name]
            self._ledger.remove_device(name)
        for name, settings in named.items():
            known = self._watched.get(name)
            device = self._ledger.set_device(
                name, devices[name], 0, settings.headroom, settings.concurrency or INFINITY
            )
            if known is None or known.device is not device or not known.is_measured_as(settings):
                known = self._watched[name] = MonitoredDevice(device, settings, self._meters.source(name))
                self._ledger.cells.external[device.index] = 0
            known.settings = settings
            device.capacity = known.capacity

    def state_changed(self, key: ReplicaKey, state: State, now: float) -> None:
        self._holders.set_state(key, state, now)

    # ------------------------------------------------------------------ reports

    def load_reported(self, key: ReplicaKey, load: EngineLoad, now: float) -> None:
        holder = self._holders.get(key)
        if holder is not None:
            self._measuring.load_reported(holder, self._watched[holder.place.device.name], load, now)

    def footprint_measured(self, key: ReplicaKey, amount: int, now: float) -> None:
        """A server reports how much more it holds since it loaded the model."""
        holder = self._holders.get(key)
        if holder is not None:
            holder.base_reported_at = now
            self._measuring.footprint_measured(holder, amount, now)

    def worker_reported(self, report: WorkerReport, now: float) -> None:
        """Workers write what servers hold into the ledger themselves."""
        for sample in report.samples:
            if sample.model in self.sizings:
                self.sizings[sample.model].add_sample(sample)
        for model in report.unmeasured:
            if model in self.sizings:
                self.sizings[model].is_silent(now)
        for replica in report.replicas:
            if replica.base is None:
                continue
            holder = self._holders.get((replica.model, replica.id))
            if holder is not None and now - holder.base_reported_at > SERVER_REPORT_TTL_SECONDS:
                self._measuring.base_reported(holder, replica.base, now)

    def out_of_memory(self, message: OutOfMemory, now: float) -> None:
        """Raises the estimate for such requests, and keeps them from the device for a while."""
        holder = self._holders.get((message.model, message.id))
        if holder is None:
            return
        watched, sizing = self._watched[holder.place.device.name], self.sizings[message.model]
        watched.ran_out += 1
        watched.last_ran_out = now
        needed = sizing.out_of_memory(message, now)
        seconds = self._quarantines.add(message.model, watched.name, needed, now) if needed else 0.0
        if quarantines := self._quarantines.to_send(now):
            self._fleet.broadcast(sizing.tell(now))
            for quarantine in quarantines:
                self._fleet.broadcast(quarantine)
        where = (message.model, watched.name)
        if now - self._noted.get(where, -INFINITY) >= LOG_INTERVAL_SECONDS:
            self._noted[where] = now
            self._record_out_of_memory(message, watched.name, needed, seconds)

    def _record_out_of_memory(self, message: OutOfMemory, device: str, needed: int, seconds: float) -> None:
        had = f"{format_size(message.bytes)} were reserved for it"
        seen = "its server crashed" if message.how == "crash" else "its answer said so"
        what = f"a request ran out of memory on {device} ({seen}): {had}"
        if needed:
            what += f"; requests like it now reserve {format_size(needed)} and avoid {device} for {seconds:.0f} s"
        self._fleet.record("memory", what, model=message.model, replica=message.id, level=logging.WARNING)

    def worker_exited(self, row: int, now: float, *, adoptable: bool = False) -> None:
        """Its requests may still run, so its reservations count on for a while."""
        left = self._orphans.worker_exited(row, self._holders.devices, now, adoptable=adoptable)
        if left and not adoptable:
            what = f"a worker died with {format_size(left)} reserved: that counts until its requests are surely over"
            self._fleet.record("memory", what)

    def reservations_adopted(self, message: ReservationsAdopted) -> None:
        self._orphans.adopted(message.reservations)

    # ------------------------------------------------------------------ for placement and managed replicas

    def free_bytes(self) -> dict[str, int]:
        """By device, for a load at any server."""
        return {
            name: self._ledger.free_bytes(watched.device) if watched.capacity else UNLIMITED_BYTES
            for name, watched in self._watched.items()
        }

    def budgets(self) -> dict[str, int]:
        """Bytes by device that may be used in all."""
        return {name: watched.device.budget for name, watched in self._watched.items()}

    def free_bytes_at(self, key: ReplicaKey) -> int:
        """For a load at this replica's server, which may use memory the server keeps for itself."""
        holder = self._holders.get(key)
        if holder is None:
            return 0
        return self._ledger.free_bytes_on(holder.place.server) if holder.place.device.capacity else UNLIMITED_BYTES

    def footprint(self, model: str) -> int:
        """Bytes a copy holds while idle, declared or learned; 0: unknown."""
        sizing = self.sizings.get(model)
        return sizing.footprint.value if sizing is not None else 0

    def reserve(self, key: ReplicaKey, amount: int) -> bool:
        """For a load, under the ledger's lock; includes what was reserved before. False: no room now."""
        holder = self._holders.get(key)
        return holder is None or self._holders.reserve(holder, amount)

    def release(self, key: ReplicaKey) -> None:
        holder = self._holders.get(key)
        if holder is not None:
            self._holders.release(holder)

    def resident(self, key: ReplicaKey) -> None:
        """It is loaded: it counts whether or not it fits or was reserved."""
        holder = self._holders.get(key)
        if holder is not None and not holder.resident:
            watched = self._watched[holder.place.device.name]
            before = self._ledger.used(watched.device)
            self._holders.hold(holder)
            # Until now it counted as external usage, unless its server was measured.
            watched.external.reclaim(self._ledger.used(watched.device) - before)
            self._ledger.cells.external[watched.device.index] = watched.external_usage

    def is_over(self, key: ReplicaKey, now: float) -> bool:
        holder = self._holders.get(key)
        return holder is not None and is_over(self._watched[holder.place.device.name], self._ledger, now)

    # ------------------------------------------------------------------ periodically

    def tick(self, now: float) -> None:
        self._measuring.sample(self._watched, now)
        for name, look, began in self._meters.tick(now):
            self._measuring.reading_taken(self._watched[name], look, began, now)
        self._orphans.tick(now)
        for sizing in self.sizings.values():
            sizing.tick(now)
        self._holders.tick(now)
        self._learn()
        self._broadcast_changes(now)
        self._update_alarms(now)

    def _learn(self) -> None:
        """A few samples of each model: a busy one must leave time for the others."""
        waiting = [sizing for sizing in self.sizings.values() if sizing.waiting]
        for sizing in waiting:
            sizing.learn(max(1, MAX_LEARNED_PER_TICK // len(waiting)))

    def _broadcast_changes(self, now: float) -> None:
        capacities = {name: w.capacity for name, w in self._watched.items() if w.capacity and not w.settings.memory}
        if capacities != self._capacities:
            self._capacities = capacities
            self._fleet.broadcast(DeviceCapacities(dict(capacities)))
        for sizing in self.sizings.values():
            if sizing.due(now):
                self._fleet.broadcast(sizing.tell(now))
        for quarantine in self._quarantines.to_send(now):
            self._fleet.broadcast(quarantine)

    def initial_state(self) -> list[ToWorker]:
        if not self._watched:
            return []
        sizes = [sizing.message() for sizing in self.sizings.values()]
        return [DeviceCapacities(dict(self._capacities)), *sizes, *self._quarantines.in_force(self._fleet.now())]

    async def stopped(self) -> None:
        await self._meters.close()

    def views(self, now: float) -> tuple[tuple[DeviceView, ...], tuple[ModelMemoryView, ...]]:
        quarantines, in_flight = self._quarantines.in_force(now), self._fleet.in_flight()
        devices = (
            device_view(watched, self._ledger, self._holders, in_flight, quarantines, now)
            for watched in self._watched.values()
        )
        return tuple(devices), tuple(map(sizes_view, self.sizings.values()))

    def alarms(self, now: float) -> list[Alarm]:
        self._update_alarms(now)
        return self._alarms.in_force(now)

    def _update_alarms(self, now: float) -> None:
        self._alarms.update(find_alarms(self._watched.values(), self._ledger, self._holders, self.sizings, now), now)
