"""Tells of replicas that the core ejects, and of those that return."""

from __future__ import annotations

from ..core.balancer import Balancer
from ..core.pool import Pool
from ..core.replica import Replica, State
from .events import EventKind, EventQueue


class EjectionNotifier:
    def __init__(self, balancer: Balancer, pool: Pool, events: EventQueue) -> None:
        self._balancer = balancer
        self._pool = pool
        self._events = events
        self._told = 0  # ejections of the balancer
        self._out: dict[str, Replica] = {}  # ejected, as far as was told

    @property
    def changed(self) -> bool:
        return self._balancer.ejections != self._told

    def tell(self, now: float) -> None:
        """To be called when `changed`, and about once a second: only time ends an ejection."""
        self._told = self._balancer.ejections
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
