"""Device memory as a worker sees it: what answers report, and requests that ran out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ...config import Config, ModelConfig, ReplicaConfig
from ...core.memory.filter import NO_FILTER, CandidateFilter
from ...core.memory.ledger import Device, MemoryLedger, Residency, Server
from ...core.memory.request_size import RequestSizeModel
from ...core.replica import Replica, State
from ...core.request import INFINITY, Request
from ...link.messages import (
    MAX_SAMPLES_PER_REPORT,
    DeviceCapacities,
    FromWorker,
    MemorySample,
    MemorySizes,
    OutOfMemory,
    Quarantine,
    ReplicaDemand,
)
from ..proxy.dispatch_hooks import DeviceMemory, Driver

DEMAND_INTERVAL_SECONDS: Final = 0.05  # between two reports of the same model
QUARANTINE_SECONDS: Final = 60.0  # unless the supervisor says otherwise
CRASH_WINDOW_SECONDS: Final = 3.0  # a server gone so soon after requests broke has crashed with them
CRASH_MIN_MEMORY_SHARE: Final = 0.5  # of the room for requests in use: a crash may be for lack of memory
MAX_DURATION_FACTOR: Final = 3.0  # × predicted: then what a dead worker had sent is surely over


class BrokenRequest(NamedTuple):
    """The largest of the requests that broke with a server."""

    when: float
    replica: Replica
    kind: str
    features: tuple[float, ...]
    bytes: int
    used_share: float  # of its device's room for requests


class TrackedDeviceMemory(DeviceMemory):
    def __init__(self, driver: Driver, ledger: MemoryLedger, say: Callable[[FromWorker], None]) -> None:
        self._driver = driver
        self._ledger = ledger
        self._send = say
        self._measured: dict[str, int] = {}  # capacities of devices, as the supervisor says
        self._placed: frozenset[str] = frozenset()  # models that are loaded on demand
        self._started: frozenset[str] = frozenset()  # models of which replicas are started
        self._samples: list[MemorySample] = []
        self._demand_reported_at: dict[str, float] = {}  # when a model was last said to be wanted
        self._broken: dict[Server, BrokenRequest] = {}

    def configure(self, config: Config, devices: Mapping[str, int]) -> None:
        for name in [name for name in self._ledger.devices if name not in devices]:
            self._ledger.remove_device(name)
        for name, index in devices.items():
            settings = config.devices[name]
            capacity = settings.memory or self._measured.get(name, 0)
            self._ledger.set_device(name, index, capacity, settings.headroom, settings.concurrency or INFINITY)
        self._placed = frozenset(name for name, model in config.models.items() if model.placement is not None)
        self._started = frozenset(name for name, model in config.models.items() if model.runtime is not None)

    def declare_model(self, name: str, model: ModelConfig, before: ModelConfig | None) -> None:
        declared = (float(model.memory.per_request), float(model.memory.per_unit))
        said = None if before is None else (float(before.memory.per_request), float(before.memory.per_unit))
        if said != declared or self._admission(name) is NO_FILTER:
            self._driver.balancer.track_memory(name, RequestSizeModel(*declared), model.memory.footprint)

    def place_replica(self, settings: ReplicaConfig, model: ModelConfig, column: int) -> Residency | None:
        device = self._ledger.devices.get(settings.device)
        if device is None or column < 0:
            return None
        permanent = model.placement is None or model.placement.pinned
        return self._ledger.add_residency(device, settings.url, column, permanent=permanent)

    def move_replica(self, replica: Replica, settings: ReplicaConfig, model: ModelConfig) -> None:
        place = replica.residency
        if place is not None:
            if place.device is self._ledger.devices.get(settings.device):
                place.permanent = model.placement is None or model.placement.pinned
                return
            self._ledger.remove_residency(place)
        replica.residency = self.place_replica(settings, model, replica.context.column)

    def apply(self, message: DeviceCapacities | MemorySizes | Quarantine, now: float) -> None:
        if isinstance(message, DeviceCapacities):
            self._measured = dict(message.bytes)
            for name, capacity in message.bytes.items():
                device = self._ledger.devices.get(name)
                if device is not None:
                    device.capacity = capacity
        elif message.model not in self._driver.balancer.models:
            return  # removed meanwhile
        elif isinstance(message, MemorySizes):
            self._admission(message.model).load_state(message.footprint, message.requests, message.unmeasured)
        else:
            self._admission(message.model).quarantine(message.device, message.bytes, now + message.seconds)

    def _admission(self, model: str) -> CandidateFilter:
        """A no-op if the model was removed meanwhile, or its memory is not counted."""
        pool = self._driver.balancer.find(model)
        return pool.memory if pool is not None else NO_FILTER

    def dispatched(self, replica: Replica, seconds: float, now: float) -> None:
        if replica.residency is not None:
            self._ledger.cells.set_lease(replica.residency.column, now + MAX_DURATION_FACTOR * seconds)

    def request_waiting(self, model: str, now: float) -> None:
        if model in self._placed or (model in self._started and not self._driver.balancer.pool(model).members):
            self._report_demand(model, now)

    def has_waiting(self) -> bool:
        """Does a request wait for a model of which replicas are started?"""
        balancer = self._driver.balancer
        return any((pool := balancer.find(model)) is not None and len(pool.queue) > 0 for model in self._started)

    def request_rejected(self, model: str, now: float) -> None:
        pool = self._driver.balancer.find(model)
        if pool is not None and not pool.members and (model in self._started or model in self._placed):
            self._report_demand(model, now)

    def _report_demand(self, model: str, now: float) -> None:
        if now >= self._demand_reported_at.get(model, 0.0) + DEMAND_INTERVAL_SECONDS:
            self._demand_reported_at[model] = now
            queue = self._driver.balancer.pool(model).queue
            self._send(ReplicaDemand(model, max(1, len(queue)), queue.work))

    def response_started(
        self, replica: Replica, request: Request, held: int | None, request_bytes: int | None, informative: bool
    ) -> None:
        place = replica.residency
        if place is None:
            return
        if held is not None:
            self._ledger.set_measured(place, held)
        measured = request_bytes is not None
        if measured or informative:
            self._admission(request.model).record_measurement(request, measured)
        if request_bytes is not None and len(self._samples) < MAX_SAMPLES_PER_REPORT:
            self._samples.append(MemorySample(request.model, replica.id, request.kind, request.features, request_bytes))

    def take_samples(self) -> tuple[MemorySample, ...]:
        samples, self._samples = self._samples, []
        return tuple(samples)

    def unmeasured(self) -> tuple[str, ...]:
        balancer = self._driver.balancer
        return tuple(name for name in balancer.models if balancer.pool(name).memory.unmeasured)

    def out_of_memory(self, request: Request, replica: Replica, how: str, now: float) -> None:
        """Call it before the attempt is finished."""
        place = replica.residency
        found = self._driver.balancer.report_out_of_memory(request, replica, now)
        if found is not None and place is not None:
            model = replica.context.model
            report = OutOfMemory(model, replica.id, request.kind, request.features, *found, how)
            self._report_out_of_memory(report, place.device, now)

    def connection_lost(self, request: Request, replica: Replica, now: float) -> None:
        """Call it before the attempt is finished."""
        attempt = request.attempt if request.attempt and request.attempt.replica is replica else request.hedge
        if replica.residency is None or attempt is None or attempt.reservation is None:
            return
        server, amount = replica.residency.server, attempt.reservation[1]
        if replica.state is State.DRAINING or not server.device.capacity or not amount:
            return  # its end was known, or its size cannot be the cause
        full = self._used_share(server.device)
        self._broken = {s: broken for s, broken in self._broken.items() if now - broken.when <= CRASH_WINDOW_SECONDS}
        before = self._broken.get(server)
        if before is None or before.bytes < amount:
            self._broken[server] = BrokenRequest(now, replica, request.kind, request.features, amount, full)

    def _used_share(self, device: Device) -> float:
        cells = self._ledger.cells
        total = cells.total(device.index)
        room = device.budget - (self._ledger.reserved(device) - total)
        return total / room if device.capacity and room > 0 else 1.0

    def replica_gone(self, replica: Replica, now: float) -> None:
        """The replica is gone, or another process. Did it crash under its load?"""
        place = replica.residency
        if place is None:
            return
        broken = self._broken.pop(place.server, None)
        if broken is None or now - broken.when > CRASH_WINDOW_SECONDS or broken.used_share < CRASH_MIN_MEMORY_SHARE:
            return
        id, model = broken.replica.id, broken.replica.context.model
        at_least = self._admission(model).record_crash(broken.features, broken.kind, broken.bytes)
        if at_least:
            report = OutOfMemory(model, id, broken.kind, broken.features, broken.bytes, at_least, "crash")
            self._report_out_of_memory(report, place.device, now)

    def _report_out_of_memory(self, report: OutOfMemory, device: Device, now: float) -> None:
        self._admission(report.model).quarantine(device.name, report.available, now + QUARANTINE_SECONDS)
        self._send(report)
