"""How many requests run and how many wait for their turn; each is counted once and given back once."""

from __future__ import annotations

import asyncio
import time
from collections import deque


class ConcurrencyLimiter:
    """First come, first served. Used from the loop's thread only; the numbers may be read from any."""

    def __init__(self, limit: int | None, most_waiting: int) -> None:
        self.limit = limit
        self.max_waiting = most_waiting
        self.running = 0
        self.websockets = 0  # open web sockets; they take no turn, because nobody knows what they do with it
        self.served = 0
        self.abandoned = 0  # clients that left while they waited
        self.last_activity = time.monotonic()  # when something came or ended
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def present(self) -> int:
        """All that a drain waits for."""
        return self.running + len(self._line) + self.websockets

    @property
    def utilization(self) -> float | None:
        """Requests here for one that may run; None: any number may."""
        return None if self.limit is None else (self.running + len(self._line)) / self.limit

    def try_acquire(self) -> bool:
        """A turn at once, if there is one."""
        self.last_activity = time.monotonic()
        if self.limit is not None and self.running >= self.limit:
            return False
        self.running += 1
        return True

    def enqueue(self) -> asyncio.Future[None] | None:
        """A place at the end of the line, done when it is its turn; None: the line is full."""
        if len(self._line) >= self.max_waiting:
            return None
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        return place

    def abandon(self, place: asyncio.Future[None]) -> None:
        """The client is gone, whether its turn has come meanwhile or not."""
        self.abandoned += 1
        self.last_activity = time.monotonic()
        if place.done():
            self._next()
        else:
            self._line.remove(place)

    def release(self) -> None:
        """A turn is over."""
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
        """Hand the turn on: the number of those who run does not change if somebody waits."""
        if self._line:
            self._line.popleft().set_result(None)
        else:
            self.running -= 1
