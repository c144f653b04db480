"""The accounts made visible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ...core.memory import Ledger, Server
from ...core.request import INFINITY
from ...link.messages import Quarantine, Report
from ..roster import Key
from ..views import DeviceView, HoldingView, QuarantineView, ServerView, SizesView
from .holder import Holder, held, reserved
from .holders import Holders
from .sizing import Sizing
from .watched import Watched


def device_views(
    devices: Iterable[Watched],
    ledger: Ledger,
    holders: Holders,
    reports: Iterable[Report],
    quarantines: Sequence[Quarantine],
    now: float,
) -> tuple[DeviceView, ...]:
    in_flight: dict[Key, int] = defaultdict(int)
    for report in reports:
        for replica in report.replicas:
            in_flight[replica.model, replica.id] += replica.in_flight
    return tuple(_device(watched, ledger, holders, in_flight, quarantines, now) for watched in devices)


def _device(
    watched: Watched,
    ledger: Ledger,
    holders: Holders,
    in_flight: Mapping[Key, int],
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
        taken=ledger.taken(device),
        other=ledger.cells.other(device.index),
        measured=watched.used,
        age=None if watched.used is None else max(0.0, now - watched.looked),
        requests=ledger.cells.count(device.index),
        concurrency=None if device.concurrency == INFINITY else int(device.concurrency),
        ran_out=watched.ran_out,
        servers=tuple(_server(server, ledger, holders, in_flight) for server in device.servers.values()),
        quarantines=tuple(
            QuarantineView(model=q.model, bytes=q.bytes, seconds=q.seconds)
            for q in quarantines
            if q.device == device.name
        ),
    )


def _server(server: Server, ledger: Ledger, holders: Holders, in_flight: Mapping[Key, int]) -> ServerView:
    return ServerView(
        server=server.name,
        reserved=reserved(server, ledger.cells),
        held=held(server, ledger.cells) or None,
        holdings=tuple(_holding(holder, ledger, in_flight) for holder in holders.at(server)),
    )


def _holding(holder: Holder, ledger: Ledger, in_flight: Mapping[Key, int]) -> HoldingView:
    slot = holder.place.slot
    return HoldingView(
        model=holder.model,
        replica=holder.key[1],
        state=holder.state.value,
        base=ledger.cells.base(slot),
        running=ledger.cells.running(slot),
        in_flight=in_flight.get(holder.key, 0),
        pinned=holder.place.permanent,
    )


def sizes_view(sizing: Sizing) -> SizesView:
    smallest, largest = sizing.range()
    return SizesView(
        model=sizing.model,
        footprint=sizing.footprint.value,
        footprint_source=sizing.footprint.source,
        requests_source=sizing.source,
        samples=sizing.requests.samples,
        smallest=smallest,
        largest=largest,
    )
