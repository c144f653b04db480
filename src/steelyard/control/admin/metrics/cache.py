"""Who scrapes, however often and many they are, costs the supervisor one page a second."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from ...supervisor.admin_service import AdminService
from . import render_page

CACHE_SECONDS = 1.0  # seconds for which a page is shared: workers report no more often


class MetricsCache:
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
