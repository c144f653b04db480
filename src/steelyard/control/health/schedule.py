"""Many things, each with its time, and one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
INFINITY = float("inf")
TIMER_RESOLUTION_SECONDS = 0.001  # seconds: timers are no finer


class Schedule(Generic[T]):
    """`run` is called with each when its time has come; to be run again, it has to be given another."""

    def __init__(self, run: Callable[[T], None]) -> None:
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._times: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []  # with entries that do not hold any more
        self._order = count()
        self._timer: asyncio.Handle | None = None
        self._rings_at = INFINITY  # kept here: uvloop's handle of what is due at once does not say
        self._closed = False

    def at(self, what: T, when: float) -> None:
        """Whatever was said of it before."""
        if when == INFINITY or self._closed:
            self.forget(what)
        elif self._times.get(what) != when:
            self._times[what] = when
            heappush(self._heap, (when, next(self._order), what))
            self._set_timer()

    def time_of(self, what: T) -> float:
        return self._times.get(what, INFINITY)

    def forget(self, what: T) -> None:
        self._times.pop(what, None)

    def close(self) -> None:
        self._closed = True
        self._times.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        first = self._heap[0][0]
        if self._timer is not None:
            if self._rings_at <= first:
                return
            self._timer.cancel()
        self._rings_at = first
        self._timer = self._loop.call_at(first, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self._loop.time() + TIMER_RESOLUTION_SECONDS
        while self._heap and self._heap[0][0] <= now:
            when, _, what = heappop(self._heap)
            if self._times.get(what) == when:
                del self._times[what]
                self._run(what)
        if self._heap:
            self._set_timer()
