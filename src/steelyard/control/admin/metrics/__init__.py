"""The fleet in Prometheus' text form (version 0.0.4). What is not known is left out. docs/metrics.md explains each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING

from ...observability.metrics_snapshot import MetricsSnapshot
from ...observability.views import FleetView
from .exposition import Family, render
from .gateway import gateway_families
from .memory import memory_families
from .models import model_families
from .replicas import probe_families, replica_families
from .scaling import scaling_families
from .slo import slo_families

if TYPE_CHECKING:
    from ...supervisor.admin_service import AdminService

CACHE_SECONDS = 1.0  # workers report no more often
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


class MetricsCache:
    """However many scrape, and however often, the supervisor renders one page a second."""

    def __init__(self, operations: AdminService, clock: Callable[[], float] = monotonic) -> None:
        self._operations = operations
        self._clock = clock
        self._page = ""
        self._until = 0.0

    def page(self) -> str:
        now = self._clock()
        if not self._page or now >= self._until:
            self._page = render_page(*self._operations.metrics())
            self._until = now + CACHE_SECONDS
        return self._page
