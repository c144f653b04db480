"""A worker's end: a balancer that asks the balancer process.

The worker has the models and replicas of the fleet, as ever; their load, their queues and all that is learned are in
the balancer process. A decision that takes an answer is `Pending`, and comes out of `receive` later. Decided here,
because the answer is wanted at once: whether a failed attempt is retried. Each worker has a retry budget of its own,
which its own requests fill, so the bound on all attempts holds.

While the balancer process is away its requests wait, and when it is back it is told what runs and what waits here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any, Final

from ...core.attempts.hedging import other_attempt, running_attempt
from ...core.balancer import Balancer
from ...core.decision import Cancel, Decision, Pending, Reject, Send, Wait
from ...core.errors import MisuseError
from ...core.memory.ledger import Residency
from ...core.outcome import Outcome, Retryable
from ...core.pool import Pool, effective_outcome
from ...core.reason import Reason
from ...core.replica import Replica, State
from ...core.request import INFINITY, Attempt, Request, RequestPhase
from ...core.scheduler import NO_DECISIONS, pool_of
from .messages import (
    OTHER_RUNS,
    OUTCOME_CODES,
    OVER,
    REASONS,
    RETRY,
    CancelRequest,
    Decline,
    Dispatch,
    EngineLoadReport,
    FailOver,
    Finish,
    Hello,
    Queued,
    Refuse,
    ReplicaRefused,
    ResponseStarted,
    Running,
    Stop,
    Submit,
    TrialPassed,
    encode_prompt,
)

NEW: Final = RequestPhase.NEW
WAITING: Final = RequestPhase.WAITING
RUNNING: Final = RequestPhase.RUNNING
DONE: Final = RequestPhase.DONE
UNREACHABLE: Final = Outcome.UNREACHABLE
PLANNED_HEDGE: Final[list[Any]] = []  # an attempt's `hedge_entry`, where the balancer process may hedge it
MAX_PARKED_SECONDS: Final = 1.0  # in which a replica that the balancer process knows becomes known here
MAX_REMOVED_REPLICAS: Final = 4096  # remembered: to these nothing is sent that was decided before


def _drop(message: Any) -> None:
    """While the balancer process is away: it learns all that runs and waits when it is back."""


class BalancerClient(Balancer):
    def __init__(self, worker: int, pid: int, rng: Random | None = None) -> None:
        super().__init__(rng)
        self._hello = Hello(worker, pid)
        self._post: Callable[[Any], None] = _drop
        self._post_later: Callable[[Any], None] = _drop  # with the next message
        self._requests: dict[int, Request] = {}  # that wait or run, by number
        self._numbers: dict[Request, int] = {}
        self._next_number = count(1).__next__
        self._parked: list[tuple[float, Dispatch]] = []  # until when; to replicas that are not known here yet
        self._removed: dict[tuple[str, str], None] = {}  # replicas that were known here, model and id
        self._declined: set[int] = set()  # requests that were decided for one of those
        self._away_since = 0.0  # while the balancer process is away
        self._refuse_at = INFINITY  # when one that waits for it may have waited long enough
        self.on_fail_over: Callable[[Replica, float], None] = lambda replica, now: None

    # ------------------------------------------------------------------ the balancer process

    @property
    def connected(self) -> bool:
        return self._post is not _drop

    def connect(self, post: Callable[[Any], None], post_later: Callable[[Any], None]) -> None:
        """It is there, perhaps again: it learns what runs and what waits. `post_later`: with the next message."""
        self._refuse_at = INFINITY
        self._post, self._post_later = post, post_later
        post(self._hello)
        for request in self._requests.values():
            for attempt, hedged in ((request.attempt, False), (request.hedge, True)):
                if attempt is not None:
                    submit = self._submit(request)
                    post(
                        Running(
                            submit,
                            attempt.replica.id,
                            attempt.started,
                            attempt.seconds_alone,
                            attempt.predicted,
                            attempt.reservation[1] if attempt.reservation is not None else 0,
                            hedged,
                            attempt.notes or 0.0,
                        )
                    )
        for request in self._requests.values():
            if request.phase is WAITING:
                post(self._submit(request))

    def disconnect(self, now: float) -> None:
        self._post = self._post_later = _drop
        self._away_since = now
        self._refuse_by(now)  # `expire` looks when that really is
        self._declined.clear()
        self._parked.clear()  # their requests wait, and are submitted again

    def receive(self, messages: Sequence[Any], now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for message in messages:
            kind = type(message)
            if kind is Dispatch:
                decision = self._dispatched(message, now)
            elif kind is Queued:
                decision = self._queued(message)
            elif kind is Refuse:
                decision = self._refused(message)
            elif kind is Stop:
                decision = self._stopped(message)
            else:
                decision = None
                self._fail_over(message, now)
            if decision is not None:
                decisions.append(decision)
        return decisions

    def _dispatched(self, message: Dispatch, now: float, parked_until: float = 0.0) -> Decision | None:
        request = self._requests.get(message.number)
        if request is None or (request.phase is not WAITING and not message.hedged):
            return None  # its client left meanwhile: the balancer process is about to hear of it
        pool = pool_of(request)
        replica = pool.replicas.get(message.replica)
        if replica is None:
            if (request.model, message.replica) in self._removed and message.number not in self._declined:
                # At once, but once: while the balancer process knows no other, it would choose the same again.
                self._declined.add(message.number)
                self._decline(message, now)
                return None
            until = parked_until or now + MAX_PARKED_SECONDS
            self._parked.append((until, message))
            self._wake_by(until)
            return None
        running = request.attempt
        if message.hedged and running is not None and running.hedge_entry is None:
            self._decline(message, now)  # its answer has begun
            return None
        self._note(request, message)
        attempt = Attempt(
            request, replica, now, message.seconds_alone, message.predicted, message.concurrency, 0.0, 0.0
        )
        if replica.residency is not None:
            attempt.reservation = (replica.residency, message.reserved_bytes)
        if request.idempotent and pool.options.hedge.enabled:
            attempt.hedge_entry = PLANNED_HEDGE
        replica.in_flight += 1
        replica.dispatched += 1
        replica.unverified = message.unverified
        pool.active += 1
        if message.hedged and running is not None:
            request.hedge = attempt
            return Send(request, replica, hedged=True)
        if not request.attempt_count:
            pool.retry_budget.deposit()
        request.attempt = attempt
        request.attempt_count += 1
        request.phase = RUNNING
        return Send(request, replica)

    def _queued(self, message: Queued) -> Decision | None:
        request = self._requests.get(message.number)
        if request is None or request.phase is not WAITING:
            return None
        self._note(request, message)
        return Wait(request)

    def _refused(self, message: Refuse) -> Decision | None:
        request = self._requests.get(message.number)
        if request is None or request.phase is not WAITING:
            return None
        self._note(request, message)
        request.binding_deadline = message.binding_deadline
        request.deadline_bound = message.deadline_bound
        request.predicted_seconds = message.predicted
        if message.starting is not None:  # the supervisor may not have told us yet
            pool = pool_of(request)
            pool.next_ready_at, pool.next_ready_is_guess, pool.start_failure = message.starting
        self._forget(request)
        return Reject(request, REASONS[message.reason], message.retry_after, message.too_large)

    def _stopped(self, message: Stop) -> Decision | None:
        request = self._requests.get(message.number)
        if request is None:
            return None
        for attempt in (request.attempt, request.hedge):
            if attempt is not None and attempt.replica.id == message.replica:
                self._release(request, attempt)
                return Cancel(request, attempt.replica)
        return None

    def _fail_over(self, message: FailOver, now: float) -> None:
        pool = self._pools.get(message.model)
        replica = pool.replicas.get(message.replica) if pool is not None else None
        if replica is not None:
            self.on_fail_over(replica, now)

    def _note(self, request: Request, message: Dispatch | Queued | Refuse) -> None:
        request.base = message.base
        if request.choice_trace is not None and message.choice_count:
            request.choice_trace.extend(message.choices, message.choice_count, message.base)

    # ------------------------------------------------------------------ requests

    def submit(self, request: Request, now: float, *, wait: bool = True) -> Decision:
        if request.phase is not NEW:
            raise MisuseError(f"{request!r} was submitted before")
        if not wait:
            raise MisuseError("the balancer process decides: its answer takes a moment")
        request.arrived = now
        pool = self._pools.get(request.model)
        if pool is None:
            request.phase = DONE
            return Reject(request, Reason.UNKNOWN_MODEL)
        request.pool = pool
        request.phase = WAITING
        number = self._next_number()
        self._requests[number] = request
        self._numbers[request] = number
        if not self.connected:
            self._refuse_by(now + pool.options.queue_timeout)
            return Pending(request, away=True)
        self._post(self._submit(request))
        return Pending(request)

    def finish(
        self,
        request: Request,
        outcome: Outcome,
        now: float,
        *,
        replica: Replica | None = None,
        status: int = 0,
        retry: bool | None = None,
    ) -> Sequence[Decision]:
        attempt = running_attempt(request, replica)
        other = other_attempt(request, attempt)
        replica = attempt.replica
        failed = outcome.failed
        self._release(request, attempt)
        if effective_outcome(attempt, outcome, now).failed:
            replica.failed += 1
        then = OVER
        decisions: Sequence[Decision] = NO_DECISIONS
        if other is not None:
            if failed and outcome.retryable is not Retryable.NEVER:
                request.attempt, request.hedge = other, None
                request.avoid = (*request.avoid, replica)
                then = OTHER_RUNS
            else:
                self._release(request, other)
                decisions = (Cancel(request, other.replica),)
        elif failed and self._may_try_again(request, outcome, now):
            request.avoid = (*request.avoid, replica)
            request.phase = WAITING
            then = RETRY
            decisions = (Pending(request),)
            if not self.connected:
                self._refuse_by(now)
        # Without a limit no request waits for the slot: it is not urgent.
        usage = request.usage
        urgent = then == RETRY or pool_of(request).options.concurrency != "unlimited"
        (self._post if urgent else self._post_later)(
            Finish(
                self._numbers[request],
                replica.id,
                OUTCOME_CODES[outcome],
                now,
                then,
                status,
                request.first_byte,
                (usage.prompt, usage.output, usage.cached) if usage is not None else None,
            )
        )
        if then == OVER:
            self._forget(request)
        return decisions

    def cancel(self, request: Request, now: float) -> Sequence[Decision]:
        if request.phase is not WAITING and request.phase is not RUNNING:
            raise MisuseError(f"{request!r} is not waiting or running")
        self._post(CancelRequest(self._numbers[request], now))
        decisions: list[Decision] = []
        for attempt in (request.attempt, request.hedge):
            if attempt is not None:
                self._release(request, attempt)
                decisions.append(Cancel(request, attempt.replica))
        self._forget(request)
        return decisions

    def response_started(
        self, request: Request, replica: Replica, now: float, *, first_byte: bool = True
    ) -> Sequence[Decision]:
        winner = running_attempt(request, replica)
        winner.hedge_entry = None
        if first_byte:
            winner.notes = now  # no policy notes anything here; the next balancer process wants to know it
        loser = other_attempt(request, winner)
        self._post(ResponseStarted(self._numbers[request], replica.id, now, first_byte))
        if loser is None:
            return NO_DECISIONS
        self._release(request, loser)
        request.attempt, request.hedge = winner, None
        return (Cancel(request, loser.replica),)

    def out_of_time(self, request: Request, now: float) -> Sequence[Decision]:
        """The balancer process has said nothing of it: it is away, or slow."""
        if request.phase is not WAITING:
            return NO_DECISIONS
        self._post(CancelRequest(self._numbers[request], now))
        self._forget(request)
        return (Reject(request, Reason.DEADLINE),)

    # ------------------------------------------------------------------ which replicas there are

    def add_replica(
        self,
        id: str,
        model: str = "",
        *,
        weight: float = 1.0,
        zone: str = "",
        state: State = State.READY,
        context: Any = None,
        place: Residency | None = None,
        now: float,
    ) -> Sequence[Decision]:
        super().add_replica(id, model, weight=weight, zone=zone, state=state, context=context, place=place, now=now)
        self._removed.pop((model, id), None)
        if self._parked:
            self._wake_by(now)
        return NO_DECISIONS

    def _forget_replica(self, pool: Pool, id: str, now: float) -> None:
        super()._forget_replica(pool, id, now)
        self._removed[pool.model, id] = None
        if len(self._removed) > MAX_REMOVED_REPLICAS:
            del self._removed[next(iter(self._removed))]

    # ------------------------------------------------------------------ what workers see of replicas

    def report_engine_load(
        self, id: str, requests: float, model: str = "", *, now: float, lasting: float
    ) -> Sequence[Decision]:
        self.tell(EngineLoadReport(model, id, requests, lasting))
        return NO_DECISIONS

    def trial_passed(self, id: str, model: str = "", *, now: float) -> Sequence[Decision]:
        self.pool(model).find(id).unverified = False
        self.tell(TrialPassed(model, id))
        return NO_DECISIONS

    def replica_failed(self, replica: Replica, refused: bool, now: float) -> None:
        """Other failures it learns from how attempts end."""
        if refused:
            self.tell(ReplicaRefused(replica.context.model, replica.id))

    def tell(self, message: Any) -> None:
        """What else a worker sees."""
        self._post(message)

    def number_of(self, request: Request) -> int:
        return self._numbers.get(request, 0)

    # ------------------------------------------------------------------ time

    def expire(self, now: float) -> Sequence[Decision]:
        """The balancer process does what time brings about. Here: replicas that were not known yet, and while it is
        away, requests that waited as long as they may."""
        decisions: list[Decision] = []
        if now >= self._refuse_at:
            decisions += self._refuse_overdue(now)
        parked, self._parked = self._parked, []
        for until, message in parked:
            if until <= now:
                self._decline(message, now)
                continue
            decision = self._dispatched(message, now, until)
            if decision is not None:
                decisions.append(decision)
        self.wake = min((until for until, _ in self._parked), default=INFINITY)
        self._wake_by(self._refuse_at)
        return decisions

    def _refuse_by(self, when: float) -> None:
        if when < self._refuse_at:
            self._refuse_at = when
            self._wake_by(when)

    def _refuse_overdue(self, now: float) -> list[Decision]:
        refused: list[Decision] = []
        self._refuse_at = INFINITY
        for request in list(self._requests.values()):
            if request.phase is WAITING:
                pool = pool_of(request)
                until = max(request.arrived, self._away_since) + pool.options.queue_timeout
                if until <= now:
                    self._forget(request)
                    refused.append(Reject(request, Reason.QUEUE_TIMEOUT, pool.retry_after(now)))
                else:
                    self._refuse_by(until)
        return refused

    def _decline(self, message: Dispatch, now: float) -> None:
        self._post(Decline(message.number, message.replica, now))

    # ------------------------------------------------------------------ inside

    def _submit(self, request: Request) -> Submit:
        prompt = request.prompt
        return Submit(
            self._numbers[request],
            request.model,
            request.arrived,
            request.features,
            request.kind,
            request.tenant,
            request.fair_share_key,
            request.key,
            request.cold_seconds,
            request.deadline,
            request.first_byte_by,
            request.streams,
            request.priority,
            request.idempotent,
            request.attempt_count,
            request.choice_trace is not None,
            encode_prompt(prompt) if prompt is not None else None,
        )

    @staticmethod
    def _may_try_again(request: Request, outcome: Outcome, now: float) -> bool:
        """Where no replica is left, the client gets what this one said."""
        pool = pool_of(request)
        somewhere = bool(pool.members) or pool.may_wait_for_ready(now)
        return somewhere and pool.retry_budget.try_spend(request, outcome, now)

    @staticmethod
    def _release(request: Request, attempt: Attempt) -> None:
        attempt.replica.in_flight -= 1
        pool_of(request).active -= 1
        if request.attempt is attempt:
            request.attempt = None
        else:
            request.hedge = None

    def _forget(self, request: Request) -> None:
        request.phase = DONE
        number = self._numbers.pop(request)
        del self._requests[number]
        self._declined.discard(number)
