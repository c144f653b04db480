"""The scheduler: places one request, sends or queues it, and serves the queue when a place becomes free.

Open replicas, less those that failed it → memory filter → the policy's choice, which may be to wait → reservation →
dispatch. Queued requests go the same way when a slot or memory is free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from mypy_extensions import mypyc_attr

from .attempts.hedging import Hedging
from .candidates import MANY_CANDIDATES
from .decision import Cancel, Decision, Reject, Send, Wait
from .errors import PolicyFailedError
from .estimator.deadlines import latest_start
from .memory.ledger import MemoryLedger
from .pool import Pool
from .reason import Reason
from .replica import Replica
from .request import INFINITY, Request, RequestPhase

MAX_QUEUE_LOOKAHEAD = 32  # queued requests tried for a replica that does not suit the first
MIN_RECHECK_SECONDS = 0.001
NO_DECISIONS: Final[tuple[Decision, ...]] = ()
# Bound once: a lookup through the enumeration costs more than the comparison, compiled or not.
WAITING: Final = RequestPhase.WAITING
RUNNING: Final = RequestPhase.RUNNING
DONE: Final = RequestPhase.DONE

# The pool, the request, its candidates, the one chosen (None: it waits for a better one), and now.
ChoiceObserver = Callable[[Pool, Request, Sequence[Replica], "Replica | None", float], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler:
    """The inner half of the balancer: one pool at a time."""

    def __init__(self, rng: Random, ledger: MemoryLedger) -> None:
        self.rng = rng
        self.ledger = ledger
        self.wake = INFINITY  # when `expire` is due: may be too early, never too late
        self.hedging = Hedging()
        self.on_choice: ChoiceObserver | None = None  # told of each choice for a request that has a `choice_trace`

    def _place(self, pool: Pool, request: Request, ahead: float, now: float) -> Replica | None:
        """The open replica to use, with room reserved there; None: wait, for a better one or for room."""
        candidates: Sequence[Replica] = pool.open
        if request.avoid:
            # Not one that failed it already, unless there is no other at all.
            others: Sequence[Replica]
            if len(candidates) > MANY_CANDIDATES:
                others = pool.open_without(request.avoid)
            else:
                others = [r for r in candidates if r not in request.avoid]
            if not others and any(r not in request.avoid and not r.suspended for r in pool.members):
                return None
            candidates = others or candidates
        memory, ledger = pool.memory, self.ledger
        if ledger.wake <= now:
            ledger.expire(now)
        if some := memory.filter(request, candidates, now):
            replica = self._choose(pool, request, some, ahead, now)
            if replica is None or memory.reserve(request, replica, now):
                return replica
            # Another process was faster, or there were too many to check: now each is checked.
            fitting = self._fitting(pool, request, candidates, replica, now)
            while fitting:
                replica = self._choose(pool, request, fitting, ahead, now)
                if replica is None:
                    return None
                if replica not in fitting:  # a policy that samples may add a replica from an earlier choice
                    replica = fitting[0]
                if memory.reserve(request, replica, now):
                    return replica
                fitting.remove(replica)
        again = memory.note_blocked(request, pool.open, now)
        self._wake_by(ledger.wake)
        self._recheck(pool, again)
        return None

    def _fitting(
        self, pool: Pool, request: Request, candidates: Sequence[Replica], failed: Replica, now: float
    ) -> list[Replica]:
        """The others with room; of many, the first ones from a random place on."""
        fits = pool.memory.fits
        count = len(candidates)
        if count <= MANY_CANDIDATES:
            return [r for r in candidates if r is not failed and fits(request, r, now)]
        fitting: list[Replica] = []
        start = int(self.rng.random() * count)
        for place in range(start - count, start):
            replica = candidates[place]
            if replica is not failed and fits(request, replica, now):
                fitting.append(replica)
                if len(fitting) == MANY_CANDIDATES:
                    break
        return fitting

    def _choose(
        self, pool: Pool, request: Request, candidates: Sequence[Replica], ahead: float, now: float
    ) -> Replica | None:
        policy = pool.policy
        replica: Replica | None = pool.probation.choose(request, candidates, now) if pool.probation.due else None
        if replica is None:
            replica = policy.choose(request, candidates, now)
            if pool.patient and replica is not None:
                seconds = policy.patience(request, replica, ahead, now)
                if seconds > 0.0:
                    self._recheck(pool, now + max(seconds, MIN_RECHECK_SECONDS))
                    replica = None
        if request.choice_trace is not None and self.on_choice is not None:
            self.on_choice(pool, request, candidates, replica, now)
        return replica

    def _recheck(self, pool: Pool, when: float) -> None:
        if when < pool.recheck_at:
            pool.recheck_at = when
            self._wake_by(when)

    def _wake_by(self, when: float) -> None:
        if when < self.wake:
            self.wake = when

    @staticmethod
    def _reject(pool: Pool, request: Request, reason: Reason, now: float) -> Reject:
        request.phase = DONE
        pool.memory.release_earmark(request)
        return Reject(request, reason, pool.retry_after(now))

    def _send(self, pool: Pool, request: Request, replica: Replica, now: float) -> Send:
        if not request.attempt_count:
            pool.retry_budget.deposit()  # only what is tried at all may pay for retries
        request.attempt = attempt = pool.dispatch(request, replica, now)
        request.attempt_count += 1
        request.phase = RUNNING
        pool.notify_dispatched(attempt, now)
        if pool.options.hedge.enabled and request.idempotent and request.hedgeable:
            self._wake_by(self.hedging.plan(pool, attempt, now))
        return Send(request, replica)

    def _wait(self, pool: Pool, request: Request, now: float) -> Decision:
        queue = pool.queue
        latest = latest_start(pool, request)
        since = now if request.attempt_count else request.arrived  # a retry has its own time to wait
        limit = pool.queue_deadline(since)
        request.queued_at = since
        request.deadline_bound = latest < limit
        request.expires = expires = latest if request.deadline_bound else limit
        if queue.full:
            victim = queue.preemption_victim(request)
            if victim is None:
                reason = Reason.TENANT_SHARE if queue.tenant_at_fair_share(request) else Reason.QUEUE_FULL
                return self._reject(pool, request, reason, now)
            # `expire`, due at once, rejects the victim: the driver only looks at this request now.
            queue.remove(victim)
            pool.memory.release_earmark(victim)
            pool.preempted.append(victim)
            self.wake = now
        queue.add(request)
        request.phase = WAITING
        self._wake_by(expires)
        return Wait(request)

    def _dispatch(self, pool: Pool, now: float) -> Sequence[Decision]:
        queue = pool.queue
        pool.recheck_at = INFINITY
        if not len(queue) or not pool.open:
            return NO_DECISIONS
        sent: list[Decision] = []
        while len(queue) and pool.open:
            ahead = 0.0
            blocked = pool.memory.begin_pass()
            for looked, request in enumerate(queue.ordered()):
                if looked >= MAX_QUEUE_LOOKAHEAD:
                    return sent
                if blocked.covers(request):
                    ahead += request.base
                    continue
                try:
                    replica = self._place(pool, request, ahead, now)
                except PolicyFailedError:
                    queue.remove(request)
                    sent.append(self._reject(pool, request, Reason.POLICY_FAILED, now))
                    break
                except Exception:
                    if sent:
                        return sent  # what was decided must reach the driver; the next tick will raise again
                    raise
                if replica is not None:
                    queue.remove(request, served=True)
                    if request.version != pool.estimator.version:
                        pool.estimator.prepare(request)  # more is known now than when it arrived
                    sent.append(self._send(pool, request, replica, now))
                    break
                ahead += request.base
                blocked.note(request)
            else:
                return sent
        return sent

    def _dispatch_freed(self, pool: Pool | None, now: float) -> Sequence[Decision]:
        """Serves the queues of this pool and of those that wait for freed memory, the oldest request first."""
        ledger = self.ledger
        self._wake_by(ledger.wake)
        if not ledger.freed:
            return self._dispatch(pool, now) if pool is not None else NO_DECISIONS
        pools = {} if pool is None else {pool: None}
        for device in ledger.freed:
            pools.update(device.waiting)
            device.waiting.clear()
        ledger.freed.clear()
        decisions: list[Decision] = []
        for each in sorted(pools, key=_oldest_arrival):
            if not each.removed:
                decisions.extend(self._dispatch(each, now))
        return decisions

    def _refuse_expired(self, pool: Pool, now: float, decisions: list[Decision]) -> None:
        for request in pool.preempted:
            decisions.append(self._reject(pool, request, Reason.PREEMPTED, now))
        pool.preempted.clear()
        for request in pool.queue.expired(now):
            pool.queue.remove(request)
            if self._extend_wait(pool, request, now):
                continue
            reason = Reason.DEADLINE if request.deadline_bound else Reason.QUEUE_TIMEOUT
            if reason is Reason.QUEUE_TIMEOUT and not pool.members and not pool.options.wait_for_ready:
                reason = Reason.NO_REPLICA
            if pool.open and pool.memory.is_blocked(request):
                reason = Reason.INSUFFICIENT_MEMORY
            decisions.append(self._reject(pool, request, reason, now))

    @staticmethod
    def _extend_wait(pool: Pool, request: Request, now: float) -> bool:
        """Longer than planned, if a replica is being started or is back."""
        latest, limit = latest_start(pool, request), pool.queue_deadline(request.queued_at)
        if min(latest, limit) <= now:
            return False
        request.deadline_bound = latest < limit
        request.expires = latest if request.deadline_bound else limit
        pool.queue.add(request)
        return True

    def _retry(self, pool: Pool, request: Request, failed: Replica, now: float) -> Decision:
        request.avoid = (*request.avoid, failed)
        request.attempt = None
        if pool.open:
            try:
                replica = self._place(pool, request, 0.0, now)
            except PolicyFailedError:
                return self._reject(pool, request, Reason.POLICY_FAILED, now)
            if replica is not None:
                return self._send(pool, request, replica, now)
        if not pool.members and (pool.removed or not pool.may_wait_for_ready(now)):
            return self._reject(pool, request, Reason.NO_REPLICA, now)
        return self._wait(pool, request, now)

    def _end_everywhere(self, request: Request, pool: Pool, now: float) -> list[Decision]:
        cancelled: list[Decision] = []
        for attempt in (request.attempt, request.hedge):
            if attempt is not None and attempt in attempt.replica.running_attempts:
                pool.release(attempt, now, over=False)
                cancelled.append(Cancel(request, attempt.replica))
        request.attempt = request.hedge = None
        request.phase = DONE
        return cancelled


def _oldest_arrival(pool: Pool) -> float:
    """A pool with an empty queue goes last."""
    for request in pool.queue.ordered():
        return request.arrived
    return INFINITY


def refuse_after_policy_error(request: Request) -> Reject:
    """For a driver: `submit` raised PolicyFailedError."""
    request.phase = DONE
    return Reject(request, Reason.POLICY_FAILED)


def pool_of(request: Request) -> Pool:
    pool = request.pool
    assert pool is not None, "a request that waits or runs has been submitted"
    return pool
