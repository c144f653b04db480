"""The accounts made visible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ...core.memory.ledger import MemoryLedger, Server
from ...core.request import INFINITY
from ...link.messages import Quarantine, WorkerReport
from ..fleet.registry import ReplicaKey
from ..observability.views import DeviceView, ModelMemoryView, QuarantineView, ResidentModelView, ServerView
from .device_replica import DeviceReplica, held_bytes, reserved_bytes
from .device_replicas import DeviceReplicas
from .model_sizing import ModelSizing
from .monitored_device import MonitoredDevice


def device_views(
    devices: Iterable[MonitoredDevice],
    ledger: MemoryLedger,
    holders: DeviceReplicas,
    reports: Iterable[WorkerReport],
    quarantines: Sequence[Quarantine],
    now: float,
) -> tuple[DeviceView, ...]:
    in_flight: dict[ReplicaKey, int] = defaultdict(int)
    for report in reports:
        for replica in report.replicas:
            in_flight[replica.model, replica.id] += replica.in_flight
    return tuple(_device(watched, ledger, holders, in_flight, quarantines, now) for watched in devices)


def _device(
    watched: MonitoredDevice,
    ledger: MemoryLedger,
    holders: DeviceReplicas,
    in_flight: Mapping[ReplicaKey, int],
    quarantines: Iterable[Quarantine],
    now: float,
) -> DeviceView:
    device = watched.device
    return DeviceView(
        device=device.name,
        capacity=watched.capacity or None,
        source=watched.source,
        headroom=device.headroom,
        budget=device.budget,
        reserved=ledger.reserved(device),
        committed=ledger.used(device),
        external_usage=ledger.cells.external(device.index),
        measured=watched.used,
        age=None if watched.used is None else max(0.0, now - watched.looked),
        requests=ledger.cells.count(device.index),
        concurrency=None if device.concurrency == INFINITY else int(device.concurrency),
        out_of_memory_errors=watched.ran_out,
        servers=tuple(_server(server, ledger, holders, in_flight) for server in device.servers.values()),
        quarantines=tuple(
            QuarantineView(model=q.model, bytes=q.bytes, seconds=q.seconds)
            for q in quarantines
            if q.device == device.name
        ),
    )


def _server(
    server: Server, ledger: MemoryLedger, holders: DeviceReplicas, in_flight: Mapping[ReplicaKey, int]
) -> ServerView:
    return ServerView(
        server=server.name,
        reserved=reserved_bytes(server, ledger.cells),
        measured=held_bytes(server, ledger.cells) or None,
        models=tuple(_holding(holder, ledger, in_flight) for holder in holders.at(server)),
    )


def _holding(holder: DeviceReplica, ledger: MemoryLedger, in_flight: Mapping[ReplicaKey, int]) -> ResidentModelView:
    slot = holder.place.slot
    return ResidentModelView(
        model=holder.model,
        replica=holder.key[1],
        state=holder.state.value,
        base=ledger.cells.base(slot),
        running=ledger.cells.running(slot),
        in_flight=in_flight.get(holder.key, 0),
        pinned=holder.place.permanent,
    )


def sizes_view(sizing: ModelSizing) -> ModelMemoryView:
    smallest, largest = sizing.range()
    return ModelMemoryView(
        model=sizing.model,
        footprint=sizing.footprint.value,
        footprint_source=sizing.footprint.source,
        requests_source=sizing.source,
        samples=sizing.requests.samples,
        smallest=smallest,
        largest=largest,
    )
