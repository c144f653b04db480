"""The other workers of this machine: their load on each replica and their queues, by the load board."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from ...core.decision import Decision
from ...core.replica import Replica
from ...core.request import INFINITY
from ...link.load_board import LoadBoard
from ..proxy.dispatch_hooks import Peers
from ..proxy.proxy import Proxy

REFRESH_SECONDS: Final = 1.0  # the balancer forgets counts that are not confirmed
POLL_SECONDS: Final = 0.001  # while requests wait for a slot that another worker may free
YIELD_SECONDS: Final = 0.003  # for which a freed slot is left to another worker


class PeerWorkers(Peers):
    def __init__(self, proxy: Proxy, board: LoadBoard, index: int) -> None:
        self._proxy = proxy
        self._board = board
        self._index = index
        self._others = [worker for worker in range(board.workers) if worker != index]
        self.count = len(self._others)
        self._seen = [board.change_count(worker) for worker in range(board.workers)]
        self._replicas: dict[int, tuple[Replica, str]] = {}  # column → replica and its model
        self._queue_columns: dict[str, int] = {}  # model → the column of its queue length
        self._yielded: deque[tuple[float, int]] = deque()  # until when, which column
        self._refresh = REFRESH_SECONDS
        self._refresh_at = 0.0

    def add_replica(self, replica: Replica, model: str, column: int) -> None:
        self._replicas[column] = (replica, model)
        self._board.put_count(self._index, column, replica.in_flight)

    def remove_replica(self, column: int) -> None:
        if self._replicas.pop(column, None) is not None:
            self._board.put_count(self._index, column, 0)

    def set_queue_columns(self, columns: Mapping[str, Mapping[str, int]]) -> None:
        """After a change of the fleet. All workers find the same columns."""
        for column in self._queue_columns.values():
            self._board.put_queue(self._index, column, 0)
        self._queue_columns = {}
        for model, of_model in columns.items():
            self.set_queue_column(model, of_model)
        balancer = self._proxy.balancer
        self._refresh = min(
            [REFRESH_SECONDS, *(2.0 * balancer.pool(model).options.evaluation_interval for model in balancer.models)]
        )

    def set_queue_column(self, model: str, columns: Mapping[str, int]) -> None:
        before = self._queue_columns.pop(model, None)
        if before is not None:
            self._board.put_queue(self._index, before, 0)
        if columns:
            self._queue_columns[model] = min(columns.values())

    def publish(self, replica: Replica) -> None:
        """Not of a replica that was removed and only finishes what it has."""
        column = replica.context.column
        known = self._replicas.get(column)
        if known is not None and known[0] is replica:
            self._board.put_count(self._index, column, replica.in_flight)

    def _publish_queues(self) -> bool:
        """True: requests wait here."""
        balancer = self._proxy.balancer
        some = False
        for model in balancer.models:
            waiting = len(balancer.pool(model).queue)
            some = some or waiting > 0
            column = self._queue_columns.get(model)
            if column is not None:
                self._board.put_queue(self._index, column, waiting)
        return some

    def refresh(self, now: float) -> None:
        board, seen = self._board, self._seen
        changed: set[int] | None = None
        for worker in self._others:
            number = board.change_count(worker)
            if number != seen[worker]:
                news = board.changed_columns(worker, seen[worker], number)
                changed = set(news) if changed is None else changed.union(news)
                seen[worker] = number
        while self._yielded and self._yielded[0][0] <= now:  # not taken: it is ours again
            column = self._yielded.popleft()[1]
            changed = {column} if changed is None else {column, *changed}
        if now >= self._refresh_at:
            self._refresh_at = now + self._refresh
            changed = set(self._replicas)
        if changed is not None:
            self._apply_counts(changed, now)

    def _apply_counts(self, columns: set[int], now: float) -> None:
        proxy, board = self._proxy, self._board
        decisions: list[Decision] = []
        for column in columns:
            known = self._replicas.get(column)
            if known is None:
                continue
            replica, model = known
            count = board.others_count(self._index, column)
            if count or replica.other_load > replica.external_load:
                decisions += proxy.balancer.report_peer_load(replica.id, count, model, now=now)
        if decisions:
            proxy.dispatcher.execute(decisions, now)

    def next_poll(self, now: float) -> float:
        """When to refresh even though nothing happens here."""
        return now + POLL_SECONDS if self._publish_queues() else INFINITY

    def yield_to_longest_queue(self, replica: Replica, model: str, now: float) -> None:
        """A request there is about to end: if far more wait in another worker, the slot is left to it. Otherwise each
        worker would keep the slots it has."""
        known = self._replicas.get(replica.context.column)
        column = self._queue_columns.get(model)
        if known is None or known[0] is not replica or column is None:
            return  # it was removed meanwhile
        mine = len(self._proxy.balancer.pool(model).queue)
        if not mine or self._board.longest_queue(self._index, column) <= 2 * mine + 1:
            return
        others = replica.other_load - replica.external_load + 1
        decisions = self._proxy.balancer.report_peer_load(replica.id, others, model, now=now)
        self._yielded.append((now + YIELD_SECONDS, replica.context.column))
        self._proxy.dispatcher.execute(decisions, now)
