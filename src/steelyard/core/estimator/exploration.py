"""Exploration: occasionally sends one request to an idle replica believed slow.

Idea: only answers correct an estimate, and `least_work` sends none to a replica that was slow for a while.

Formula: at most one exploration in REQUESTS_PER_EXPLORATION finished requests, of a replica that is idle, unused for
that long and slower than MIN_SLOWNESS_RATIO × the fastest; the interval doubles each time it is still slow.

Source: docs/decisions/0022-crowds-and-trials.md. Limits: small requests with time to spare, unless there are no others;
replicas in slow start, ejected or with recent failures have their own way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..candidates import is_candidate
from ..replica import Replica, State
from ..request import INFINITY, Request
from .slowness import SlownessFilter

if TYPE_CHECKING:
    from ..pool import Pool
    from ..review import Review, Steps

REQUESTS_PER_EXPLORATION = 300  # the p99 does not show one
MIN_IDLE_SECONDS = 5.0
MIN_SLOWNESS_RATIO = 1.1  # nearer ones get requests when others are busy
CHUNK = 256  # replicas of a large pool looked at in one step


class Exploration:
    def __init__(self) -> None:
        self.due: list[Replica] = []  # the next one last
        self._looked = 0  # attempts that had ended at the last look
        self._paid = 0  # and at the last one before the last trial
        self._kept_back = 0  # requests that could not be spared, since the last trial

    def plan(self, members: Sequence[Replica], finished: int, now: float) -> None:
        due: list[Replica] = []
        limit = MIN_SLOWNESS_RATIO * min((r.slowness for r in members), default=INFINITY)
        for replica in members:
            if _is_due(replica, limit, finished, now):
                due.append(replica)
        self._plan(due, finished)

    def review(self, review: Review, fastest: float, pool: Pool) -> Steps:
        """As `plan`, in chunks. `fastest`: the least slowness."""
        due: list[Replica] = []
        for chunk in review.members(CHUNK):
            for replica in chunk:
                if _is_due(replica, MIN_SLOWNESS_RATIO * fastest, pool.finished, review.now):
                    due.append(replica)
            yield
        self._plan(due, pool.finished)

    def _plan(self, due: list[Replica], finished: int) -> None:
        room = min(
            (finished - self._paid) // REQUESTS_PER_EXPLORATION,
            1 + (finished - self._looked) // REQUESTS_PER_EXPLORATION,
        )
        self._looked = finished
        self.due.clear()
        if due and room > 0:
            due.sort(key=lambda replica: -int(replica.slowness_filter.explore_after))
            for replica in due[-room:]:
                replica.slowness_filter.exploring = True
                self.due.append(replica)

    def take(self, request: Request, candidates: Sequence[Replica], typical: float, now: float) -> Replica | None:
        """The next one to try, if the request can be spared: it is small, in time and warm there, or all are not."""
        replica = self.due[-1]
        if not is_candidate(candidates, replica):
            return None
        due = min(request.deadline, request.first_byte_by)
        precious = request.base > typical or now + request.base * replica.slowness > due
        cold = request.cold_seconds and replica.warm is not None and request.key not in replica.warm
        if (precious or cold) and self._kept_back < REQUESTS_PER_EXPLORATION:
            self._kept_back += 1
            return None
        self._kept_back = 0
        self._paid = self._looked
        self.due.pop()
        return None if replica.in_flight else replica


def _is_due(replica: Replica, slow: float, finished: int, now: float) -> bool:
    speed: SlownessFilter = replica.slowness_filter
    if replica.dispatched != speed.dispatched_seen:
        if replica.dispatched > speed.dispatched_seen + 1:
            speed.exploration_backoff = 1  # it is in use
        speed.dispatched_seen = replica.dispatched
        speed.explore_after = finished + REQUESTS_PER_EXPLORATION * speed.exploration_backoff
        return False
    return (
        finished >= speed.explore_after
        and replica.slowness > slow
        and speed.seen > 0
        and not replica.in_flight
        and now - speed.updated_at >= MIN_IDLE_SECONDS
        and replica.slow_start_factor == 1.0
        and replica.state is State.READY
    )
