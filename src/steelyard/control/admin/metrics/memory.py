"""The memory ledger, reserved against measured."""

from __future__ import annotations

from collections.abc import Iterator

from ...observability.views import FleetView
from .exposition import Family, Sample, attribute_families, labels

_OF_DEVICE = (
    ("steelyard_device_requests_in_flight", "gauge", "running requests of all models", "requests"),
    (
        "steelyard_device_out_of_memory_errors_total",
        "counter",
        "requests that ran out of memory there",
        "out_of_memory_errors",
    ),
)


def memory_families(fleet: FleetView) -> Iterator[Family]:
    devices = [(labels(device=view.device), view) for view in fleet.devices]
    ledger = [
        Sample(f'{of},kind="{kind}"', amount)
        for of, view in devices
        for kind, amount in (
            ("capacity", view.capacity),
            ("budget", view.budget if view.capacity is not None else None),
            ("reserved", view.reserved),
            ("committed", view.committed),
            ("external", view.external_usage),
            ("measured", view.measured),
        )
    ]
    yield Family("steelyard_device_memory_bytes", "gauge", "the ledger of a device, reserved against measured", ledger)
    yield from attribute_families(_OF_DEVICE, devices)
    kept = [Sample(of, len(view.quarantines)) for of, view in devices]
    yield Family("steelyard_device_quarantines", "gauge", "request sizes quarantined there", kept)
    sizes = [Sample(labels(model=view.model, kind="footprint"), view.footprint) for view in fleet.model_memory]
    yield Family("steelyard_model_memory_bytes", "gauge", "memory of a model without running requests", sizes)
    held = [
        Sample(labels(model=model.model, replica=model.replica, kind=kind), amount)
        for view in fleet.devices
        for server in view.servers
        for model in server.models
        for kind, amount in (("base", model.base), ("running", model.running), ("measured", server.measured))
    ]
    about = "measured: of its server process, whatever else runs there"
    yield Family("steelyard_replica_memory_bytes", "gauge", about, held)
