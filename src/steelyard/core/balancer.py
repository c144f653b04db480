"""The balancer: events in, decisions out. Synchronous, deterministic given its rng and the times it is told.

Gateway, simulator and library drive it alike: `submit` for each request, `finish` when an attempt ended, `cancel` when
the client left, `expire` no later than `next_wake()`. The driver carries out every decision that these return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from mypy_extensions import mypyc_attr

from .attempts.hedging import other_attempt, running_attempt, settle_race, stop_loser
from .attempts.retry import may_retry
from .decision import Decision, Reject, Wait
from .errors import MisuseError, OptionError, UnknownModelError
from .estimator.deadlines import can_meet_deadlines
from .memory.admission import MemoryAdmission
from .memory.ledger import MemoryLedger, Residency
from .memory.request_size import RequestSizeModel
from .options import PoolOptions
from .outcome import Outcome
from .outliers.ejection_reason import EjectionReason, EjectionRule
from .policies import make_policy
from .pool import Pool
from .queue import RequestQueue
from .reason import Reason
from .replica import Event, ExternalLoad, Replica, State, check_weight
from .request import INFINITY, Request, RequestPhase
from .scheduler import DONE, NO_DECISIONS, RUNNING, WAITING, Scheduler, pool_of

# Its replica was not heard to end it.
MAY_STILL_RUN = (Outcome.CANCELLED, Outcome.DEADLINE_EXCEEDED, Outcome.CLIENT_DEADLINE_EXCEEDED, Outcome.TIMEOUT)
# Bound once: a lookup through the enumeration costs more than the comparison, compiled or not.
NEW: Final = RequestPhase.NEW
READY: Final = State.READY
EJECTED: Final = State.EJECTED
OK: Final = Outcome.OK


@mypyc_attr(allow_interpreted_subclasses=True)
class Balancer(Scheduler):
    def __init__(self, rng: Random | None = None, ledger: MemoryLedger | None = None) -> None:
        """`ledger`: the devices whose memory is counted."""
        super().__init__(rng if rng is not None else Random(0), ledger if ledger is not None else MemoryLedger())
        self._pools: dict[str, Pool] = {}
        self.on_silent_ejection: Callable[[Replica], None] | None = None  # told of each ejected for giving no answer
        self.ejections = 0  # so far, of all models

    # ------------------------------------------------------------------ models and replicas

    def add_model(
        self,
        model: str = "",
        policy: str = "least_work",
        options: PoolOptions | None = None,
        policy_options: Mapping[str, Any] | None = None,
        now: float = 0.0,
        *,
        sizes: RequestSizeModel | None = None,
    ) -> Pool:
        """`sizes`: device memory of its requests; without it none is counted."""
        if model in self._pools:
            raise OptionError(f"model {model!r} is already there")
        pool = Pool(model, make_policy(policy, self.rng, policy_options or {}), options or PoolOptions(), now)
        if sizes is not None:
            pool.memory = MemoryAdmission(pool, self.ledger, sizes)
        self._pools[model] = pool
        self.wake = min(self.wake, pool.tick_at)
        return pool

    def track_memory(self, model: str, sizes: RequestSizeModel, footprint: int = 0) -> None:
        """From now on the memory of the model's requests is counted."""
        pool = self.pool(model)
        if not pool.memory.redeclare(sizes):
            pool.memory = MemoryAdmission(pool, self.ledger, sizes)
            pool.memory.load_state(footprint, sizes.state(), False)

    def set_policy(
        self, model: str, policy: str, options: Mapping[str, Any] | None = None, *, now: float
    ) -> Sequence[Decision]:
        """The new policy may send what the one before let wait."""
        pool = self.pool(model)
        pool.use_policy(make_policy(policy, self.rng, options or {}), now)
        return self._dispatch(pool, now)

    def set_options(self, model: str, options: PoolOptions, *, now: float) -> Sequence[Decision]:
        pool = self.pool(model)
        pool.reconfigure(options)
        self.wake = now
        return self._dispatch(pool, now)

    def remove_model(self, model: str, *, now: float) -> Sequence[Decision]:
        """What waits is refused; what runs goes on and is finished as usual."""
        pool = self.pool(model)
        del self._pools[model]
        pool.removed = True
        decisions: list[Decision] = []
        for request in (*pool.preempted, *list(pool.queue.ordered())):
            request.phase = DONE
            pool.memory.release_earmark(request)
            decisions.append(Reject(request, Reason.UNKNOWN_MODEL))
        pool.preempted.clear()
        pool.queue = RequestQueue(0)
        for id in list(pool.replicas):
            self._forget_replica(pool, id, now)
        return decisions

    def find(self, model: str) -> Pool | None:
        return self._pools.get(model)

    def pool(self, model: str = "") -> Pool:
        try:
            return self._pools[model]
        except KeyError:
            known = ", ".join(sorted(self._pools)) or "none"
            raise UnknownModelError(f"no model {model!r} (known: {known})") from None

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._pools)

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
        """`place`: where on a device it is (`MemoryLedger.add_residency`), if its memory is counted."""
        pool = self.pool(model)
        replica = Replica(id, weight, zone, state)
        replica.context = context
        replica.residency = place
        pool.memory.add_replica(replica)
        pool.add(replica, now)
        return self._dispatch(pool, now)

    def remove_replica(self, id: str, model: str = "", *, now: float) -> Sequence[Decision]:
        """Its running requests go on and are finished as usual."""
        pool = self.pool(model)
        self._forget_replica(pool, id, now)
        return self._dispatch(pool, now)

    def _forget_replica(self, pool: Pool, id: str, now: float) -> None:
        place = pool.remove(id, now).residency
        if place is not None:
            self.ledger.remove_residency(place)

    def report(self, id: str, event: Event, model: str = "", *, now: float) -> Sequence[Decision]:
        """A lifecycle event, seen by a probe or wanted by an operator."""
        if event in (Event.EJECT, Event.RESTORE):
            raise MisuseError(f"{event.value} is the balancer's own decision; drain or remove the replica instead")
        if event is Event.REMOVE:
            return self.remove_replica(id, model, now=now)
        pool = self.pool(model)
        pool.apply_event(pool.find(id), event, now)
        return self._dispatch(pool, now)

    def replica_lost(self, replica: Replica, model: str = "", *, now: float) -> Sequence[Decision]:
        """It refuses connections: it is out until it is seen ready."""
        if replica.state is not READY and replica.state is not EJECTED:
            return NO_DECISIONS
        return self.report(replica.id, Event.LOST, model, now=now)

    def admit_unverified(self, id: str, model: str = "", *, now: float) -> Sequence[Decision]:
        """For a replica whose readiness is unknown: it gets one request at a time until one succeeds."""
        pool = self.pool(model)
        pool.admit_unverified(pool.find(id), now)
        return self._dispatch(pool, now)

    def trial_passed(self, id: str, model: str = "", *, now: float) -> Sequence[Decision]:
        """A replica on trial (`admit_unverified`) has begun to answer: that is enough."""
        pool = self.pool(model)
        replica = pool.find(id)
        if replica.state is not READY or not replica.unverified:
            return NO_DECISIONS
        pool.mark_verified(replica)
        return self._dispatch(pool, now)

    def set_weight(self, id: str, weight: float, model: str = "", *, now: float) -> None:
        check_weight(id, weight)
        pool = self.pool(model)
        pool.set_weight(pool.find(id), weight, now)

    def report_peer_load(
        self, id: str, in_flight: int, model: str = "", *, now: float, age: float = 0.0
    ) -> Sequence[Decision]:
        """Requests of other balancers there, `age` seconds ago. Ignored if older than a request usually takes: it would
        send every balancer to the replica that was idle then."""
        if in_flight < 0:
            raise OptionError(f"replica {id!r}: outside load cannot be negative ({in_flight})")
        pool = self.pool(model)
        replica = pool.find(id)
        usual = pool.estimator.typical_seconds * pool.estimator.remaining.mean
        pool.set_peer_load(replica, in_flight if age <= usual else 0, now, age)
        return self._dispatch(pool, now)

    def report_engine_load(
        self, id: str, requests: float, model: str = "", *, now: float, lasting: float
    ) -> Sequence[Decision]:
        """Requests that the replica says it has, valid for `lasting` seconds. Others may use it too: this corrects our
        own counts, and never replaces them."""
        pool = self.pool(model)
        replica = pool.find(id)
        if not 0.0 <= requests < INFINITY:
            raise OptionError(f"replica {id!r}: cannot have {requests} requests")
        if replica.external_readings is None:
            replica.external_readings = ExternalLoad()
        replica.external_readings.observe(requests, replica.load - replica.external_load, lasting, now)
        pool.update_external_load(replica, now)
        return self._dispatch(pool, now)

    def report_kv_tokens(self, id: str, tokens: float, model: str = "", *, now: float) -> None:
        """Tokens that the replica's cache holds, as its engine says."""
        if not 0.0 <= tokens < INFINITY:
            raise OptionError(f"replica {id!r}: its cache cannot hold {tokens} tokens")
        self.pool(model).find(id).kv_tokens = float(tokens)

    def eject(
        self, id: str, seconds: float, model: str = "", *, now: float, reason: EjectionReason | None = None
    ) -> None:
        """It is out for `seconds`: an earlier balancer, or another, ejected it."""
        pool = self.pool(model)
        replica = pool.find(id)
        if replica.state is READY:
            replica.ejection_backoff += 1
            self.ejections += 1
            pool.ejector.eject_for(replica, seconds, reason or EjectionReason(EjectionRule.UNKNOWN), now)

    def expect_replica(
        self, model: str, seconds: float, guessed: bool = False, failure: str = "", *, now: float
    ) -> Sequence[Decision]:
        """A replica should be ready in `seconds`: requests with less time are refused now, unless that is a guess.
        `failure`: the last start failed, and the next has not begun: all that wait are refused."""
        pool = self.pool(model)
        pool.next_ready_at, pool.next_ready_is_guess = now + seconds, guessed
        pool.start_failure = "" if pool.members else failure
        if pool.members or (guessed and not failure):
            return NO_DECISIONS
        decisions: list[Decision] = []
        reason = Reason.START_FAILED if failure else Reason.DEADLINE
        for request in list(pool.queue.ordered()):
            if failure or min(request.deadline, request.first_byte_by) <= pool.next_ready_at:
                pool.queue.remove(request)
                decisions.append(self._reject(pool, request, reason, now))
        return decisions

    # ------------------------------------------------------------------ requests

    def submit(self, request: Request, now: float, *, wait: bool = True) -> Decision:
        """Without `wait` it is refused where it would have to wait."""
        if request.phase is not NEW:
            raise MisuseError(f"{request!r} was submitted before")
        request.arrived = now
        pool = self._pools.get(request.model)
        if pool is None:
            request.phase = DONE
            return Reject(request, Reason.UNKNOWN_MODEL)
        request.pool = pool
        pool.estimator.prepare(request)
        pool.arrived += 1
        pool.offered_work += request.base
        if not pool.members and (pool.start_failure or not pool.may_wait_for_ready(now)):
            return self._reject(pool, request, Reason.START_FAILED if pool.start_failure else Reason.NO_REPLICA, now)
        too_large = pool.memory.exceeds_capacity(request, now)
        if too_large is not None:
            request.phase = DONE
            return Reject(request, Reason.TOO_LARGE, too_large=too_large)
        dated = request.deadline < INFINITY or request.first_byte_by < INFINITY
        if dated and not can_meet_deadlines(pool, request, now):
            return self._reject(pool, request, Reason.DEADLINE, now)
        if pool.open:
            replica = self._place(pool, request, pool.queue.work, now)
            if replica is not None:
                return self._send(pool, request, replica, now)
        if not wait:
            blocked = pool.memory.is_blocked(request)
            return self._reject(pool, request, Reason.INSUFFICIENT_MEMORY if blocked else Reason.QUEUE_TIMEOUT, now)
        return self._wait(pool, request, now)

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
        """An attempt ended; the request is over when its phase is DONE. Decides on a retry, and on waiting requests.

        `replica`: which attempt, where a hedge made two; `status`: of a failed answer, for people; `retry`: whether it
        is tried again, if the caller has decided that.
        """
        attempt = running_attempt(request, replica)
        pool = pool_of(request)
        replica = attempt.replica
        try:
            pool.release(attempt, now, over=outcome not in MAY_STILL_RUN)
            reason = pool.record_outcome(attempt, outcome, now, status)
            if replica.state is not READY:
                if outcome is OK and replica.state is EJECTED:
                    pool.ejector.restore_after_success(attempt, now)
            elif reason is not None:
                self.ejections += 1
                pool.ejector.eject(replica, reason, now)
        except Exception:
            # A user's own policy raised. The attempt is over all the same.
            self._end_everywhere(request, pool, now)
            raise
        decisions: list[Decision] | None = None
        other = other_attempt(request, attempt)
        if other is not None:
            decisions = settle_race(pool, request, attempt, other, outcome, now)
        elif may_retry(pool, request, outcome, replica, now) if retry is None else retry:
            pool.retried += 1
            decisions = [self._retry(pool, request, replica, now)]
        else:
            request.attempt = None
            request.phase = DONE
        if len(pool.queue) or self.ledger.freed:
            released = self._dispatch_freed(pool, now)
            if decisions and type(decisions[0]) is Wait and request.phase is RUNNING:
                decisions = None  # it found a place after all
            if released:
                return [*decisions, *released] if decisions else released
        return decisions or NO_DECISIONS

    def adopt(
        self,
        request: Request,
        replica: Replica,
        started: float,
        seconds_alone: float,
        predicted: float,
        *,
        reserved_bytes: int = 0,
        hedged: bool = False,
        now: float,
    ) -> None:
        """An attempt runs that another balancer decided on: it counts from now on, and is finished as usual."""
        pool = self.pool(request.model)
        if request.phase is NEW:
            request.arrived = started
            request.pool = pool
            request.phase = RUNNING
            pool.estimator.prepare(request)
        pool.memory.adopt(request, replica, reserved_bytes)
        attempt = pool.dispatch(request, replica, now)
        replica.outstanding_work += seconds_alone - attempt.seconds_alone
        attempt.seconds_alone, attempt.predicted = seconds_alone, predicted
        pool.backdate(attempt, now - started, now)
        if hedged:
            request.hedge = attempt
        else:
            request.attempt = attempt
        pool.notify_dispatched(attempt, now)

    def out_of_time(self, request: Request, now: float) -> Sequence[Decision]:
        """Its deadline has passed and it still waits. Here `expire` refuses it; where another process decides, that may
        be away."""
        return NO_DECISIONS

    def response_started(
        self, request: Request, replica: Replica, now: float, *, first_byte: bool = True
    ) -> Sequence[Decision]:
        """This attempt's answer has begun: no hedge is started, and one that runs beside it is to stop."""
        attempt = running_attempt(request, replica)
        pool = pool_of(request)
        if first_byte and pool.wants_first_byte:
            pool.policy.first_byte(attempt, now)
        cancelled = stop_loser(pool, request, attempt, now)
        return [cancelled, *self._dispatch_freed(pool, now)] if cancelled is not None else NO_DECISIONS

    def report_out_of_memory(self, request: Request, replica: Replica, now: float) -> tuple[int, int] | None:
        """Such requests are believed to need more from now on. Call it before `finish`. Returns the bytes reserved, and
        the least it must have needed; None: memory is not counted."""
        pool = pool_of(request)
        return pool.memory.record_out_of_memory(running_attempt(request, replica), now)

    def allow_resend(self, request: Request, now: float) -> bool:
        """The replica closed an idle connection as this was sent: may it be sent there again? That counts and is paid
        for as an attempt, but is no failure of the replica."""
        if not pool_of(request).retry_budget.try_spend(request, Outcome.CONNECTION_LOST, now):
            return False
        request.attempt_count += 1
        return True

    def can_fail_over(self, request: Request, now: float) -> bool:
        """Its replica was lost: could it be tried elsewhere? Nothing is paid yet."""
        pool = pool_of(request)
        return any(r not in request.avoid for r in pool.members) and pool.retry_budget.can_fail_over(request, now)

    def cancel(self, request: Request, now: float) -> Sequence[Decision]:
        """The client left. Returns `Cancel` for what runs, and what may go now instead."""
        if request.phase is WAITING:
            pool = pool_of(request)
            if request in pool.preempted:
                pool.preempted.remove(request)
            else:
                pool.queue.remove(request)
            request.phase = DONE
            pool.memory.release_earmark(request)
            return self._dispatch_freed(pool, now) if self.ledger.freed else NO_DECISIONS
        if request.phase is not RUNNING:
            raise MisuseError(f"{request!r} is not waiting or running")
        pool = pool_of(request)
        cancelled = self._end_everywhere(request, pool, now)
        return [*cancelled, *self._dispatch_freed(pool, now)]

    # ------------------------------------------------------------------ time

    def next_wake(self) -> float | None:
        """When to call `expire` at the latest; None: never."""
        return self.wake if self.wake < INFINITY else None

    def expire(self, now: float) -> Sequence[Decision]:
        """What time brings about: expiry, hedges, ejections and their end, slow start, learning."""
        if now < self.wake:
            return NO_DECISIONS
        decisions: list[Decision] = []
        self.ledger.expire(now)
        wake = self.ledger.wake
        for pool in self._pools.values():
            self._refuse_expired(pool, now, decisions)
            only_review = self.wake == pool.tick_at  # that is why this is called
            if now >= pool.tick_at:
                self._tick(pool, now)
            if not (only_review and pool.review.under_way) or now >= pool.recheck_at:
                decisions.extend(self._dispatch(pool, now))
            wake = min(wake, pool.tick_at, pool.queue.next_expiry(), pool.recheck_at)
        if self.ledger.freed:
            decisions.extend(self._dispatch_freed(None, now))
            wake = min([wake, *(pool.recheck_at for pool in self._pools.values())])
        self.hedging.hedge_late_attempts(now, decisions)
        self.wake = min(wake, self.hedging.next_at)
        return decisions or NO_DECISIONS

    # ------------------------------------------------------------------ inside

    def _tick(self, pool: Pool, now: float) -> None:
        before = pool.ejected
        try:
            pool.tick_at = pool.review.go_on(now, self.on_silent_ejection)
        finally:
            self.ejections += pool.ejected - before
