"""Hedged requests: a second attempt beside one that is late, and the race between the two.

Idea: an attempt that runs longer than nearly all of its predicted length is probably on a replica in trouble. If an
idle replica should answer in less than half of the time left, the request is sent there too; the first answer wins.

When: at `predicted × quantile(q)` of actual / predicted duration; if no hedge is possible then, again each time the
attempt has become half as old again.

Budget: a share (`budget`) of the seconds of work sent so far, saved up to MAX_TYPICAL_REQUESTS typical requests.

Source: Dean and Barroso, "The Tail at Scale", CACM 2013 (hedged requests). Limits: only idempotent requests, only to
idle replicas, never more than two attempts at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from ..candidates import MANY_CANDIDATES
from ..decision import Cancel, Decision, Send
from ..errors import MisuseError, PolicyFailedError
from ..options import HedgeOptions
from ..outcome import Outcome, Retryable
from ..request import INFINITY, Attempt, Request, RequestPhase

if TYPE_CHECKING:
    from ..pool import Pool
    from ..replica import Replica

MIN_HEDGE_RECHECK_SECONDS = 0.001
RUNNING: Final = RequestPhase.RUNNING
DONE: Final = RequestPhase.DONE


class HedgeBudget:
    MAX_TYPICAL_REQUESTS = 100.0

    def __init__(self, options: HedgeOptions) -> None:
        self.options = options
        self.seconds_left = 0.0

    def deposit(self, seconds: float, typical: float) -> None:
        self.seconds_left = min(self.seconds_left + self.options.budget * seconds, self.MAX_TYPICAL_REQUESTS * typical)

    def try_spend(self, attempt: Attempt, seconds: float) -> bool:
        """May this attempt be doubled at a cost of `seconds`? Takes them if so."""
        request = attempt.request
        if not request.idempotent or request.hedge is not None or request.attempt is not attempt:
            return False
        if seconds > self.seconds_left:
            return False
        self.seconds_left -= seconds
        return True


class Hedging:
    def __init__(self) -> None:
        self._heap: list[list[Any]] = []  # [when, number, attempt or None once it ended]
        self._count = 0
        self._offset = 0  # where the last look at many replicas began

    def __len__(self) -> int:
        return sum(entry[2] is not None for entry in self._heap)

    @property
    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else INFINITY

    def plan(self, pool: Pool, attempt: Attempt, now: float) -> float:
        """Returns when the attempt is due to be hedged."""
        pool.hedge_budget.deposit(attempt.seconds_alone, pool.estimator.typical_seconds)
        late = pool.estimator.remaining.quantile(pool.options.hedge.quantile)
        return self._schedule(attempt, now + attempt.predicted * late)

    def _schedule(self, attempt: Attempt, when: float) -> float:
        self._count += 1
        entry = [when, self._count, attempt]
        attempt.hedge_entry = entry
        heappush(self._heap, entry)
        return when

    def hedge_late_attempts(self, now: float, decisions: list[Decision]) -> None:
        while self._heap and self._heap[0][0] <= now:
            attempt = heappop(self._heap)[2]
            if attempt is not None:
                try:
                    hedge = self._try_hedge(attempt, now)
                except PolicyFailedError:
                    continue  # the first attempt goes on alone
                if hedge is not None:
                    decisions.append(hedge)

    def _try_hedge(self, attempt: Attempt, now: float) -> Send | None:
        request = attempt.request
        if request.phase is not RUNNING or request.attempt is not attempt:
            return None
        pool = request.pool
        assert pool is not None, "a request that runs has been submitted"
        age = now - attempt.started
        idle: Sequence[Replica] = [
            r for r in self._some(pool.open) if not r.load and r is not attempt.replica and r not in request.avoid
        ]
        if idle:
            idle = pool.memory.filter(request, idle, now)
        if idle:
            replica = pool.policy.choose(request, idle, now)
            if replica not in idle:  # a policy that samples may add a replica from an earlier choice
                replica = idle[0]
            seconds = request.base * replica.slowness * pool.estimator.remaining.mean
            left = pool.estimator.remaining.after(age, attempt.predicted)
            if seconds < left / 2 and self._reserve(pool, attempt, replica, seconds, now):
                request.hedge = pool.dispatch(request, replica, now)
                pool.hedged += 1
                pool.notify_dispatched(request.hedge, now)
                return Send(request, replica, hedged=True)
        self._schedule(attempt, now + max(age / 2, MIN_HEDGE_RECHECK_SECONDS))
        return None

    def _some(self, candidates: list[Replica]) -> list[Replica]:
        """Of many, others each time."""
        count = len(candidates)
        if count <= MANY_CANDIDATES:
            return candidates
        self._offset = (self._offset + MANY_CANDIDATES) % count
        return candidates[self._offset : self._offset + MANY_CANDIDATES]

    @staticmethod
    def _reserve(pool: Pool, attempt: Attempt, replica: Replica, seconds: float, now: float) -> bool:
        """Reserve memory and budget for a hedge: both or neither."""
        if not pool.memory.reserve(attempt.request, replica, now):
            return False
        if pool.hedge_budget.try_spend(attempt, seconds):
            return True
        pool.memory.cancel_reservation(attempt.request, replica)
        return False


def cancel_hedge(attempt: Attempt) -> None:
    if attempt.hedge_entry is not None:
        attempt.hedge_entry[2] = None
        attempt.hedge_entry = None


def running_attempt(request: Request, replica: Replica | None) -> Attempt:
    """The one on this replica; None: the only one."""
    attempt = request.attempt
    if request.phase is not RUNNING or attempt is None:
        raise MisuseError(f"{request!r} is not running: it cannot be finished")
    if replica is None:
        if request.hedge is not None:
            raise MisuseError(f"{request!r} runs on two replicas: say which attempt ended")
        return attempt
    if attempt.replica is replica:
        return attempt
    if request.hedge is not None and request.hedge.replica is replica:
        return request.hedge
    raise MisuseError(f"{request!r} does not run on replica {replica.id!r}")


def other_attempt(request: Request, attempt: Attempt) -> Attempt | None:
    return request.hedge if attempt is request.attempt else request.attempt


def stop_loser(pool: Pool, request: Request, winner: Attempt, now: float) -> Cancel | None:
    """The answer of `winner` has begun: no hedge is started, and one that runs is cancelled."""
    cancel_hedge(winner)
    loser = other_attempt(request, winner)
    if loser is None:
        return None
    if winner is request.hedge:
        pool.hedges_won += 1
    pool.release(loser, now, over=False)
    request.attempt, request.hedge = winner, None
    return Cancel(request, loser.replica)


def settle_race(
    pool: Pool, request: Request, ended: Attempt, other: Attempt, outcome: Outcome, now: float
) -> list[Decision]:
    """One of two attempts ended: after a failure the other decides, anything else ends both."""
    if outcome.failed and outcome.retryable is not Retryable.NEVER:
        request.attempt, request.hedge = other, None
        request.avoid = (*request.avoid, ended.replica)
        return []
    if ended is request.hedge and outcome is Outcome.OK:
        pool.hedges_won += 1
    pool.release(other, now, over=False)
    request.attempt = request.hedge = None
    request.phase = DONE
    return [Cancel(request, other.replica)]
