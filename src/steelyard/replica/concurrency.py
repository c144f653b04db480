"""Requests that run and wait, within a limit."""

from __future__ import annotations

import asyncio
import time
from collections import deque


class ConcurrencyLimiter:
    """First come, first served. Used from the loop's thread; any thread may read the numbers."""

    def __init__(self, limit: int | None, most_waiting: int) -> None:
        self.limit = limit
        self.max_waiting = most_waiting
        self.running = 0
        self.websockets = 0  # open ones; they take no turn
        self.served = 0
        self.abandoned = 0  # clients that left while they waited
        self.last_activity = time.monotonic()  # when something came or ended
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def present(self) -> int:
        """What a drain waits for."""
        return self.running + len(self._line) + self.websockets

    @property
    def utilization(self) -> float | None:
        """Requests here by the limit; None: no limit."""
        return None if self.limit is None else (self.running + len(self._line)) / self.limit

    def try_acquire(self) -> bool:
        self.last_activity = time.monotonic()
        if self.limit is not None and self.running >= self.limit:
            return False
        self.running += 1
        return True

    def enqueue(self) -> asyncio.Future[None] | None:
        """Done at its turn; None: the queue is full."""
        if len(self._line) >= self.max_waiting:
            return None
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        return place

    def abandon(self, place: asyncio.Future[None]) -> None:
        """The client left, before or after its turn came."""
        self.abandoned += 1
        self.last_activity = time.monotonic()
        if place.done():
            self._next()
        else:
            self._line.remove(place)

    def release(self) -> None:
        self.served += 1
        self.last_activity = time.monotonic()
        self._next()

    def open_socket(self) -> None:
        self.websockets += 1
        self.last_activity = time.monotonic()

    def close_socket(self) -> None:
        self.websockets -= 1
        self.last_activity = time.monotonic()

    def _next(self) -> None:
        if self._line:
            self._line.popleft().set_result(None)
        else:
            self.running -= 1
