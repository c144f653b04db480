"""Threads and tasks that wait for a decision. One of them, the leader, also wakes when the balancer is due."""

from __future__ import annotations

from collections.abc import Callable

from ..core.decision import Decision
from ..core.request import INFINITY, Request


class Waiter:
    __slots__ = ("inbox", "request", "wake")

    def __init__(self, request: Request, wake: Callable[[], object]) -> None:
        self.request = request
        self.wake = wake
        self.inbox: list[Decision] = []


class Waiters:
    """Use it with the lock held."""

    def __init__(self, on_lost: Callable[[Request], None]) -> None:
        self._waiters: dict[Request, Waiter] = {}  # longest waiting first
        self._leader: Waiter | None = None
        self._slept_until = INFINITY  # the leader sleeps until then
        self._on_lost = on_lost

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, waiter: Waiter) -> None:
        self._waiters[waiter.request] = waiter

    def remove(self, waiter: Waiter) -> None:
        """If it was the leader, another takes over."""
        self._waiters.pop(waiter.request, None)
        if self._leader is waiter:
            self._leader = None
            self._slept_until = INFINITY
            undecided = next((other for other in self._waiters.values() if not other.inbox), None)
            if undecided is not None:
                self._wake(undecided)

    def clear(self) -> None:
        self._waiters.clear()
        self._leader = None
        self._slept_until = INFINITY

    def tell(self, decision: Decision) -> None:
        waiter = self._waiters.get(decision.request)
        if waiter is not None:
            waiter.inbox.append(decision)
            self._wake(waiter)

    def sleep(self, waiter: Waiter, wake: float) -> float:
        """Until when it may sleep, if the balancer is due at `wake`."""
        if self._leader is None:
            self._leader = waiter
        if self._leader is not waiter:
            return INFINITY
        self._slept_until = wake
        return wake

    def wake_by(self, wake: float) -> None:
        """The balancer is due at `wake`: wakes a leader that would sleep longer."""
        if self._leader is not None and wake < self._slept_until:
            self._slept_until = wake
            self._wake(self._leader)

    def _wake(self, waiter: Waiter) -> None:
        try:
            waiter.wake()
        except RuntimeError:  # its event loop is closed
            self.remove(waiter)
            self._on_lost(waiter.request)
