"""The one timer of a worker: the balancer's wake-up, deadlines of running requests, and the sweep over connections.

Deadlines are a heap. The entry of a request that is over stays, empty, until such entries outnumber the others.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from ...core.request import INFINITY

if TYPE_CHECKING:
    from ..exchange import Exchange
    from .proxy import Proxy

MIN_TIMER_SECONDS: Final = 0.0005  # never a busy loop
SWEEP_SECONDS: Final = 0.25
MAX_STALE_DEADLINES: Final = 1024


class Deadlines:
    def __init__(self, proxy: Proxy, now: float) -> None:
        self.timer_at = INFINITY  # when the timer runs
        self._proxy = proxy
        self._heap: list[list[Any]] = []  # [when, number, exchange, or None once it is over]
        self._count = 0
        self._running = 0  # entries of requests that are not over
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_at = now + SWEEP_SECONDS

    @property
    def stale(self) -> int:
        """Entries of requests that are over."""
        return len(self._heap) - self._running

    def add(self, exchange: Exchange, due: float, now: float) -> None:
        self._count += 1
        self._running += 1
        exchange.deadline_entry = entry = [due, self._count, exchange]
        heappush(self._heap, entry)
        if due < self.timer_at:
            self.wake_by(due, now)

    def remove(self, exchange: Exchange) -> None:
        entry = exchange.deadline_entry
        assert entry is not None
        entry[2] = None
        exchange.deadline_entry = None
        self._running -= 1
        if self.stale > self._running + MAX_STALE_DEADLINES:
            self._heap = [entry for entry in self._heap if entry[2] is not None]
            heapify(self._heap)

    def wake_by(self, when: float, now: float) -> None:
        if when >= self.timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.timer_at = when
        self._timer = self._proxy.loop.call_later(max(0.0, when - now), self._on_timer)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        self._timer = None
        self.timer_at = INFINITY
        proxy = self._proxy
        now = proxy.clock()
        try:
            self._run_due(now)
        finally:  # whatever went wrong with one request, the timer goes on for the others
            soonest = min(proxy.balancer.wake, self._sweep_at, self._heap[0][0] if self._heap else INFINITY)
            self.wake_by(max(soonest, now + MIN_TIMER_SECONDS), now)

    def _run_due(self, now: float) -> None:
        proxy = self._proxy
        proxy.dispatcher.expire(now)
        while self._heap and self._heap[0][0] <= now:
            exchange = heappop(self._heap)[2]
            if exchange is not None:
                exchange.deadline_entry = None
                self._running -= 1
                proxy.dispatcher.deadline_passed(exchange, now)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            proxy.sweep(now)
