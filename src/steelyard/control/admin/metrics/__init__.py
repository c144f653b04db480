"""The fleet in Prometheus' text form (version 0.0.4). What is not known is left out. docs/metrics.md explains each."""

from __future__ import annotations

from collections.abc import Iterator

from ...observability.metrics_snapshot import MetricsSnapshot
from ...observability.views import FleetView
from .exposition import Family, render
from .gateway import gateway_families
from .memory import memory_families
from .models import model_families
from .replicas import probe_families, replica_families
from .scaling import scaling_families
from .slo import slo_families

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render_page(fleet: FleetView, numbers: MetricsSnapshot | None = None) -> str:
    return render(_families(fleet, numbers or MetricsSnapshot()))


def _families(fleet: FleetView, numbers: MetricsSnapshot) -> Iterator[Family]:
    yield from gateway_families(fleet, numbers)
    yield from model_families(fleet.models, numbers)
    yield from slo_families(fleet.slo, numbers.models)
    yield from replica_families(fleet.replicas, numbers.replicas)
    yield from probe_families(fleet.replicas, numbers.probes)
    yield from scaling_families(fleet.scaling)
    yield from memory_families(fleet)
