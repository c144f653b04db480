"""What is due when, and how much of it runs at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from ...core.request import INFINITY

T = TypeVar("T", bound=Hashable)
TIMER_RESOLUTION_SECONDS = 0.001


class Schedule(Generic[T]):
    """One timer for many items. Calls `run(item)` once, when it is due."""

    def __init__(self, run: Callable[[T], None]) -> None:
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._times: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []  # may hold entries that no longer apply
        self._order = count()
        self._timer: asyncio.Handle | None = None
        self._timer_at = INFINITY  # kept here: uvloop's handle of a timer that is due does not tell
        self._closed = False

    def at(self, item: T, when: float) -> None:
        """Replaces its time. Infinity: never."""
        if when == INFINITY or self._closed:
            self.forget(item)
        elif self._times.get(item) != when:
            self._times[item] = when
            heappush(self._heap, (when, next(self._order), item))
            self._set_timer()

    def time_of(self, item: T) -> float:
        return self._times.get(item, INFINITY)

    def forget(self, item: T) -> None:
        self._times.pop(item, None)

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
            if self._timer_at <= first:
                return
            self._timer.cancel()
        self._timer_at = first
        self._timer = self._loop.call_at(first, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self._loop.time() + TIMER_RESOLUTION_SECONDS
        while self._heap and self._heap[0][0] <= now:
            when, _, item = heappop(self._heap)
            if self._times.get(item) == when:
                del self._times[item]
                self._run(item)
        if self._heap:
            self._set_timer()


class TaskLimiter(Generic[T]):
    """At most `size` tasks at once; further items wait in order. `ended(item, task)` follows, however a task ends."""

    def __init__(
        self, size: int, start: Callable[[T], asyncio.Future[None]], ended: Callable[[T, asyncio.Future[None]], None]
    ) -> None:
        self._size = size
        self._start = start
        self._ended = ended
        self._running: set[asyncio.Future[None]] = set()
        self._waiting: dict[T, None] = {}  # in order of arrival

    def __contains__(self, item: T) -> bool:
        """Whether it waits."""
        return item in self._waiting

    def submit(self, item: T) -> None:
        if len(self._running) < self._size:
            self._begin(item)
        else:
            self._waiting[item] = None

    def forget(self, item: T) -> None:
        """The caller cancels a task that runs."""
        self._waiting.pop(item, None)

    async def close(self) -> None:
        self._size = 0
        self._waiting.clear()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _begin(self, item: T) -> None:
        task = self._start(item)
        self._running.add(task)
        task.add_done_callback(partial(self._done, item))

    def _done(self, item: T, task: asyncio.Future[None]) -> None:
        self._running.discard(task)
        if (first := next(iter(self._waiting), None)) is not None:
            del self._waiting[first]
            self._begin(first)
        self._ended(item, task)
