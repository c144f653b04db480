"""Views of devices and of what models need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.memory.ledger import LedgerCells, MemoryLedger
from ...core.request import INFINITY
from ...link.messages import Quarantine
from ..fleet.registry import ReplicaKey
from ..observability.views import DeviceView, ModelMemoryView, QuarantineView, ResidentModelView, ServerView
from .device_replica import DeviceReplica, held_bytes, reserved_bytes
from .device_replicas import DeviceReplicas
from .model_sizing import ModelSizing
from .monitored_device import MonitoredDevice


def device_view(
    watched: MonitoredDevice,
    ledger: MemoryLedger,
    holders: DeviceReplicas,
    in_flight: Mapping[ReplicaKey, int],
    quarantines: Iterable[Quarantine],
    now: float,
) -> DeviceView:
    device, cells = watched.device, ledger.cells
    servers = (
        ServerView(
            server=server.name,
            reserved=reserved_bytes(server, cells),
            measured=held_bytes(server, cells) or None,
            models=tuple(_resident(holder, cells, in_flight) for holder in holders.at(server)),
        )
        for server in device.servers.values()
    )
    return DeviceView(
        device=device.name,
        capacity=watched.capacity or None,
        source=watched.source,
        headroom=device.headroom,
        budget=device.budget,
        reserved=ledger.reserved(device),
        committed=ledger.used(device),
        external_usage=cells.external(device.index),
        measured=watched.used,
        age=None if watched.used is None else max(0.0, now - watched.looked),
        requests=cells.count(device.index),
        concurrency=None if device.concurrency == INFINITY else int(device.concurrency),
        out_of_memory_errors=watched.ran_out,
        servers=tuple(servers),
        quarantines=tuple(
            QuarantineView(model=q.model, bytes=q.bytes, seconds=q.seconds)
            for q in quarantines
            if q.device == device.name
        ),
    )


def _resident(holder: DeviceReplica, cells: LedgerCells, in_flight: Mapping[ReplicaKey, int]) -> ResidentModelView:
    slot = holder.place.slot
    return ResidentModelView(
        model=holder.model,
        replica=holder.key[1],
        state=holder.state.value,
        base=cells.base(slot),
        running=cells.running(slot),
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
