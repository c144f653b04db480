"""So many at once, the others wait their turn."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class ConcurrencyLimiter(Generic[T]):
    """`start` is called for each when there is room; `leave` makes room."""

    def __init__(self, size: int, start: Callable[[T], None]) -> None:
        self._size = size
        self._start = start
        self._running = 0
        self._waiting: dict[T, None] = {}  # in the order they came

    def submit(self, what: T) -> None:
        if self._running < self._size:
            self._running += 1
            self._start(what)
        else:
            self._waiting[what] = None

    def release(self) -> None:
        """One that was started has ended."""
        self._running -= 1
        if self._waiting:
            what = next(iter(self._waiting))
            del self._waiting[what]
            self._running += 1
            self._start(what)

    def forget(self, what: T) -> None:
        """It waits no longer."""
        self._waiting.pop(what, None)

    def __contains__(self, what: T) -> bool:
        """Does it wait?"""
        return what in self._waiting
