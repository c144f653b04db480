"""Events, logged and passed to `on_event` after the lock, so that a callback may call the balancer."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ..core.balancer import Balancer
from ..core.pool import Pool
from ..core.replica import Replica, State

logger = logging.getLogger("steelyard.library")


class EventKind(Enum):
    EJECTED = "ejected"  # failing or slow
    RETURNED = "returned"  # the ejection is over
    LEASE_EXPIRED = "lease_expired"  # a request was not completed in time; frees its slot
    LATE_COMPLETION = "late_completion"  # and was completed after all; changes nothing
    ADDED = "added"
    REMOVED = "removed"
    DRAINING = "draining"
    UNDRAINED = "undrained"


WARNING_KINDS = (EventKind.EJECTED, EventKind.LEASE_EXPIRED)


@dataclass(frozen=True, slots=True)
class BalancerEvent:
    """`seconds`: how long an ejection lasts, or how old the request of a lease is. `message` is for people."""

    kind: EventKind
    replica: str
    message: str
    seconds: float | None = None


OnEvent = Callable[[BalancerEvent], object]


class EventQueue:
    def __init__(self, callback: OnEvent | None) -> None:
        self._callback = callback
        self._pending: deque[BalancerEvent] = deque()

    def add(self, kind: EventKind, replica: str, message: str, seconds: float | None = None) -> None:
        self._pending.append(BalancerEvent(kind, replica, message, seconds))

    def deliver(self) -> None:
        """Call it without the lock. Logs what a callback raises."""
        while self._pending:
            try:
                event = self._pending.popleft()
            except IndexError:  # another thread was faster
                return
            logger.log(logging.WARNING if event.kind in WARNING_KINDS else logging.INFO, "%s", event.message)
            if self._callback is None:
                continue
            try:
                self._callback(event)
            except Exception:
                logger.exception("on_event raised on %s of replica %r", event.kind.value, event.replica)


class EjectionNotifier:
    def __init__(self, balancer: Balancer, pool: Pool, events: EventQueue) -> None:
        self._balancer = balancer
        self._pool = pool
        self._events = events
        self._reported = 0  # ejections
        self._out: dict[str, Replica] = {}  # ejections that were told

    @property
    def changed(self) -> bool:
        return self._balancer.ejections != self._reported

    def tell(self, now: float) -> None:
        """Call it when `changed`, and about once a second: only time ends an ejection."""
        self._reported = self._balancer.ejections
        for id, replica in list(self._out.items()):
            if replica.state is not State.EJECTED:
                del self._out[id]
                if replica.state is State.READY:
                    self._events.add(EventKind.RETURNED, id, f"Replica {id!r} gets requests again.")
        for id, replica in self._pool.replicas.items():
            if replica.state is State.EJECTED and id not in self._out:
                self._out[id] = replica
                seconds = replica.ejected_until - now
                message = f"Replica {id!r} is ejected for {seconds:.0f} s: {replica.ejection}."
                self._events.add(EventKind.EJECTED, id, message, seconds)
