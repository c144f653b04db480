"""The other workers of this machine: what they have on each replica and how many wait there, by the load board."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..core.decision import Decision
from ..core.replica import Replica
from ..core.request import INFINITY
from ..link.board import Board

if TYPE_CHECKING:
    from .carrier import Carrier

REFRESH: Final = 1.0  # seconds: the balancer forgets news that nobody confirms
POLL: Final = 0.001  # seconds between looks while requests wait for a slot that another worker may free
LEFT: Final = 0.003  # seconds for which a freed slot is left to another worker


class Neighbours:
    def __init__(self, carrier: Carrier, board: Board, index: int) -> None:
        self._carrier = carrier
        self._board = board
        self._index = index
        self._others = [worker for worker in range(board.workers) if worker != index]
        self._seen = [board.changes(worker) for worker in range(board.workers)]
        self._replicas: dict[int, tuple[Replica, str]] = {}  # slot → replica and its model
        self._lines: dict[str, int] = {}  # model → the slot where its waiting requests are told
        self._left: deque[tuple[float, int]] = deque()  # until when, which slot: left to another worker
        self._refresh = REFRESH
        self._refresh_at = 0.0

    # ------------------------------------------------------------------ what this worker has

    def know(self, replica: Replica, model: str, slot: int) -> None:
        self._replicas[slot] = (replica, model)
        self._board.put(self._index, slot, replica.in_flight)

    def forget(self, slot: int) -> None:
        if self._replicas.pop(slot, None) is not None:
            self._board.put(self._index, slot, 0)

    def know_lines(self, slots: Mapping[str, Mapping[str, int]]) -> None:
        """After a change of the fleet: where each model's line is told. All workers find the same place."""
        for slot in self._lines.values():
            self._board.put_line(self._index, slot, 0)
        self._lines = {}
        for model, columns in slots.items():
            self.know_line(model, columns)
        balancer = self._carrier.balancer
        self._refresh = min([REFRESH, *(2.0 * balancer.pool(model).options.interval for model in balancer.models)])

    def know_line(self, model: str, columns: Mapping[str, int]) -> None:
        """Of one model, whose replicas have these columns."""
        before = self._lines.pop(model, None)
        if before is not None:
            self._board.put_line(self._index, before, 0)
        if columns:
            self._lines[model] = min(columns.values())

    def tell(self, replica: Replica) -> None:
        """Write down what this worker has there, unless it was removed and only finishes what it has."""
        slot = replica.context.slot
        known = self._replicas.get(slot)
        if known is not None and known[0] is replica:
            self._board.put(self._index, slot, replica.in_flight)

    def _tell_lines(self) -> bool:
        """Write down how many wait here. Do any?"""
        balancer = self._carrier.balancer
        some = False
        for model in balancer.models:
            waiting = len(balancer.pool(model).line)
            some = some or waiting > 0
            slot = self._lines.get(model)
            if slot is not None:
                self._board.put_line(self._index, slot, waiting)
        return some

    # ------------------------------------------------------------------ what the others have

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
        while self._left and self._left[0][0] <= now:  # nobody took it: it is ours again
            slot = self._left.popleft()[1]
            changed = {slot} if changed is None else {slot, *changed}
        if now >= self._refresh_at:
            self._refresh_at = now + self._refresh
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
            if count or replica.outside > replica.foreign:
                decisions += carrier.balancer.report_outside(replica.id, count, model, now=now)
        if decisions:
            carrier.carry_out(decisions, now)

    def look_again(self, now: float) -> float:
        """When to look even though nothing happens here."""
        return now + POLL if self._tell_lines() else INFINITY

    # ------------------------------------------------------------------ one line, though each worker has its own

    def leave_to_longer(self, replica: Replica, model: str, now: float) -> None:
        """A request there is about to end. If far more wait in another worker than here, the slot is left to it.

        Without this each worker would go on using the slots it has, however long the others' lines are.
        """
        known = self._replicas.get(replica.context.slot)
        slot = self._lines.get(model)
        if known is None or known[0] is not replica or slot is None:
            return  # it was removed meanwhile
        mine = len(self._carrier.balancer.pool(model).line)
        if not mine or self._board.longest_line(self._index, slot) <= 2 * mine + 1:
            return
        others = replica.outside - replica.foreign + 1
        decisions = self._carrier.balancer.report_outside(replica.id, others, model, now=now)
        self._left.append((now + LEFT, replica.context.slot))
        self._carrier.carry_out(decisions, now)
