"""Leases: a request that is never completed does not hold its slot for ever.

About once a second, the oldest requests of each replica that exceed the lease end, without blame for the replica.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ..core.pool import Pool
from ..core.request import INFINITY, Request, RequestPhase
from .events import EventKind, EventQueue


class EndedByBalancer(NamedTuple):
    """In `request.context`: completing it later is no mistake."""

    replica: str  # "": not by its lease


ENDED_BY_FORK = EndedByBalancer("")


class RequestLeases:
    def __init__(self, pool: Pool, seconds: float | None, events: EventQueue) -> None:
        self.count = 0  # leases that expired so far
        self._pool = pool
        self._seconds = INFINITY if seconds is None else seconds
        self._events = events
        self._unclaimed: Counter[str] = Counter()  # by replica: expired and not completed yet

    def expired(self, now: float) -> list[Request]:
        """Those to end now. Requests of a replica are in the order they were sent."""
        if self._seconds == INFINITY:
            return []
        found: dict[Request, str] = {}
        for replica in self._pool.replicas.values():
            for attempt in replica.running_attempts:
                if now - attempt.started < self._seconds:
                    break
                if attempt.request.phase is RequestPhase.RUNNING:
                    found[attempt.request] = replica.id
        for request, id in found.items():
            self._expire(request, id)
        return list(found)

    def is_late(self, request: Request, now: float) -> bool:
        """Whether it was ended by us: then its completion changes nothing, and is told once."""
        ended, request.context = request.context, None
        if ended is not None and ended.replica:
            self._claim(ended.replica, now - request.arrived)
        return ended is not None

    def is_late_id(self, id: str) -> bool:
        """The same for a bare id."""
        if id not in self._unclaimed:
            return False
        self._claim(id, None)
        return True

    def forget(self, id: str) -> None:
        self._unclaimed.pop(id, None)

    def _expire(self, request: Request, id: str) -> None:
        request.context = EndedByBalancer(id)
        self.count += 1
        self._unclaimed[id] += 1
        message = f"A request to replica {id!r} was not completed in {self._seconds:g} s: its slot is given back."
        self._events.add(EventKind.LEASE_EXPIRED, id, message, self._seconds)

    def _claim(self, id: str, age: float | None) -> None:
        self._unclaimed[id] -= 1
        if self._unclaimed[id] <= 0:
            del self._unclaimed[id]
        message = f"A request to replica {id!r} was completed after its lease had expired: nothing changes."
        self._events.add(EventKind.LATE_COMPLETION, id, message, age)
