"""The ledger of memory, reserved against measured."""

from __future__ import annotations

from collections.abc import Iterator

from ...observability.views import DeviceView, FleetView, ResidentModelView, ServerView
from .exposition import Family, Sample, labels


def memory_families(fleet: FleetView) -> Iterator[Family]:
    def of(what: str) -> list[Sample]:
        return [Sample(labels(device=view.device), getattr(view, what)) for view in fleet.devices]

    ledger = [sample for view in fleet.devices for sample in _ledger(view)]
    yield Family("steelyard_device_memory_bytes", "gauge", "the ledger of a device, reserved against measured", ledger)
    yield Family(
        "steelyard_device_requests_in_flight", "gauge", "requests that run there, of all models", of("requests")
    )
    errors = of("out_of_memory_errors")
    yield Family(
        "steelyard_device_out_of_memory_errors_total", "counter", "requests that ran out of memory there", errors
    )
    kept = [Sample(labels(device=view.device), len(view.quarantines)) for view in fleet.devices]
    yield Family("steelyard_device_quarantines", "gauge", "sizes of requests that are kept from it for now", kept)
    sizes = [Sample(labels(model=view.model, kind="footprint"), view.footprint) for view in fleet.model_memory]
    yield Family("steelyard_model_memory_bytes", "gauge", "what a model holds with nothing running", sizes)
    held = [sample for server, holding in _holdings(fleet) for sample in _holding(server, holding)]
    yield Family(
        "steelyard_replica_memory_bytes", "gauge", "measured: of its server process, whatever else runs there", held
    )


def _ledger(view: DeviceView) -> Iterator[Sample]:
    kinds = (
        ("capacity", view.capacity),
        ("budget", view.budget if view.capacity is not None else None),
        ("reserved", view.reserved),
        ("committed", view.committed),
        ("external", view.external_usage),
        ("measured", view.measured),
    )
    for kind, amount in kinds:
        yield Sample(labels(device=view.device, kind=kind), amount)


def _holdings(fleet: FleetView) -> Iterator[tuple[ServerView, ResidentModelView]]:
    return ((server, holding) for view in fleet.devices for server in view.servers for holding in server.models)


def _holding(server: ServerView, holding: ResidentModelView) -> Iterator[Sample]:
    for kind, amount in (("base", holding.base), ("running", holding.running), ("measured", server.measured)):
        yield Sample(labels(model=holding.model, replica=holding.replica, kind=kind), amount)
