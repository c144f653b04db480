"""The fleet as Prometheus metrics, without what is unknown. docs/metrics.md explains each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING

from ...observability.fleet_view import MetricsSnapshot
from ...observability.views import FleetView
from .exposition import render
from .gateway import gateway_families
from .memory import memory_families
from .models import model_families
from .replicas import probe_families, replica_families
from .scaling import scaling_families
from .slo import slo_families

if TYPE_CHECKING:
    from ...supervisor.fleet_admin import FleetAdmin

CACHE_SECONDS = 1.0  # workers report no more often
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render_page(fleet: FleetView, numbers: MetricsSnapshot | None = None) -> str:
    numbers = numbers or MetricsSnapshot()
    return render(
        chain(
            gateway_families(fleet, numbers),
            model_families(fleet.models, numbers),
            slo_families(fleet.slo, numbers.models),
            replica_families(fleet.replicas, numbers.replicas),
            probe_families(fleet.replicas, numbers.probes),
            scaling_families(fleet.scaling),
            memory_families(fleet),
        )
    )


class MetricsCache:
    """Renders at most one page a second, however many scrape."""

    def __init__(self, operations: FleetAdmin, clock: Callable[[], float] = monotonic) -> None:
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
