"""What the balancer tells the program that embeds it: a line in the log, and `on_event`.

Events are collected while the balancer is locked and delivered after, so that a callback may call the balancer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

logger = logging.getLogger("steelyard.library")


class EventKind(Enum):
    EJECTED = "ejected"  # fails or is too slow: gets nothing for a while
    RETURNED = "returned"  # the ejection is over
    LEASE_EXPIRED = "lease_expired"  # a request was not completed in time: its slot is given back
    LATE_COMPLETION = "late_completion"  # and then it was completed after all: nothing changes
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
        """To be called without the lock. A callback that raises is logged and does no harm."""
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
