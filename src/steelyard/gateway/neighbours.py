"""The other workers of this machine: what they have on each replica, read off the load board."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..core.decision import Decision
from ..core.replica import Replica
from ..core.request import INFINITY
from ..link.board import Board

if TYPE_CHECKING:
    from .carrier import Carrier

REFRESH: Final = 1.0  # seconds: the balancer forgets news that nobody confirms
POLL: Final = 0.001  # seconds between looks while requests wait for a slot that another worker may free


class Neighbours:
    def __init__(self, carrier: Carrier, board: Board, index: int) -> None:
        self._carrier = carrier
        self._board = board
        self._index = index
        self._others = [worker for worker in range(board.workers) if worker != index]
        self._seen = [board.changes(worker) for worker in range(board.workers)]
        self._replicas: dict[int, tuple[Replica, str]] = {}  # slot → replica and its model
        self._refresh_at = 0.0

    def know(self, replica: Replica, model: str, slot: int) -> None:
        self._replicas[slot] = (replica, model)
        self._board.put(self._index, slot, replica.in_flight)

    def forget(self, slot: int) -> None:
        if self._replicas.pop(slot, None) is not None:
            self._board.put(self._index, slot, 0)

    def tell(self, replica: Replica) -> None:
        """Write down what this worker has there, unless it was removed and only finishes what it has."""
        slot = replica.context.slot
        known = self._replicas.get(slot)
        if known is not None and known[0] is replica:
            self._board.put(self._index, slot, replica.in_flight)

    def look(self, now: float) -> None:
        """Take in what the others wrote since the last look."""
        board, seen = self._board, self._seen
        changed: set[int] | None = None
        for worker in self._others:
            number = board.changes(worker)
            if number != seen[worker]:
                news = board.changed(worker, seen[worker], number)
                changed = set(news) if changed is None else changed.union(news)
                seen[worker] = number
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH
            changed = set(self._replicas)
        if changed is not None:
            self._take_in(changed, now)

    def _take_in(self, slots: set[int], now: float) -> None:
        carrier, board = self._carrier, self._board
        decisions: list[Decision] = []
        for slot in slots:
            known = self._replicas.get(slot)
            if known is None:
                continue
            replica, model = known
            count = board.others(self._index, slot)
            if count or replica.outside:
                decisions += carrier.balancer.report_outside(replica.id, count, model, now=now)
        if decisions:
            carrier.carry_out(decisions, now)

    def look_again(self, now: float) -> float:
        """When to look even though nothing happens here."""
        if any(len(self._carrier.balancer.pool(model).line) for model in self._carrier.balancer.models):
            return now + POLL
        return INFINITY
