"""The balancer: events in, decisions out. Synchronous, deterministic given its rng and the times it is told.

Three drivers use it unchanged: the gateway in real time, the simulator in virtual time, and a program that embeds the
library. A driver calls `submit` for each request, `finish` when an attempt ended, `cancel` when the client left, and
`expire` no later than `next_wake()`; it carries out every decision that any of these return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from .attempts.hedging import Hedging, other_attempt, settle_race, stop_loser
from .decision import Cancel, Decision, Reject, Send, Wait
from .errors import MisuseError, OptionError, UnknownModelError
from .estimator.deadlines import can_meet_deadlines, latest_start
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
from .request import INFINITY, Attempt, Request, RequestPhase

MAX_QUEUE_LOOKAHEAD = 32  # waiting requests looked at for a replica that is not a good place for the first
MIN_RECHECK_SECONDS = 0.001
MAY_STILL_RUN = (
    Outcome.CANCELLED,
    Outcome.DEADLINE_EXCEEDED,
    Outcome.CLIENT_DEADLINE_EXCEEDED,
    Outcome.TIMEOUT,
)  # its replica was not heard to end it
# Bound once: a lookup through the enumeration costs more than the comparison, compiled or not.
NEW: Final = RequestPhase.NEW
WAITING: Final = RequestPhase.WAITING
RUNNING: Final = RequestPhase.RUNNING
DONE: Final = RequestPhase.DONE
READY: Final = State.READY
EJECTED: Final = State.EJECTED
OK: Final = Outcome.OK
OUT_OF_MEMORY: Final = Outcome.OUT_OF_MEMORY
NO_DECISIONS: tuple[Decision, ...] = ()


# The pool, the request, who could take it, who was chosen (None: it waits for a better place), and now.
ChoiceObserver = Callable[[Pool, Request, Sequence[Replica], "Replica | None", float], None]


class Balancer:
    def __init__(self, rng: Random | None = None, ledger: MemoryLedger | None = None) -> None:
        """`ledger`: the devices whose memory is counted, for models added with sizes and replicas with a place."""
        self.rng = rng if rng is not None else Random(0)
        self.ledger = ledger if ledger is not None else MemoryLedger()
        self._pools: dict[str, Pool] = {}
        self.wake = INFINITY  # `next_wake` as a plain number: may be too early, never too late
        self.hedging = Hedging()
        self.on_choice: ChoiceObserver | None = None  # told of each choice for a request that is `noted`
        self.on_silent_ejection: Callable[[Replica], None] | None = (
            None  # told of each that was ejected for giving no answer
        )
        self.ejections = 0  # so far, of all models: who wants to tell others of them looks whether it grew

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
        """`sizes`: what its requests need of a device's memory; without it they claim none."""
        if model in self._pools:
            raise OptionError(f"model {model!r} is already there")
        pool = Pool(model, make_policy(policy, self.rng, policy_options or {}), options or PoolOptions(), now)
        if sizes is not None:
            pool.memory = MemoryAdmission(pool, self.ledger, sizes)
        self._pools[model] = pool
        self.wake = min(self.wake, pool.tick_at)
        return pool

    def track_memory(self, model: str, sizes: RequestSizeModel, footprint: int = 0) -> None:
        """From now on the model's requests claim memory, by what is declared here and learned later."""
        pool = self.pool(model)
        if not pool.memory.redeclare(sizes):
            pool.memory = MemoryAdmission(pool, self.ledger, sizes)
            pool.memory.load_state(footprint, sizes.state(), False)

    def set_policy(
        self, model: str, policy: str, options: Mapping[str, Any] | None = None, *, now: float
    ) -> Sequence[Decision]:
        """Switch the policy of a model at run time; it may send what the one before let wait."""
        pool = self.pool(model)
        pool.use_policy(make_policy(policy, self.rng, options or {}), now)
        return self._dispatch(pool, now)

    def set_options(self, model: str, options: PoolOptions, *, now: float) -> Sequence[Decision]:
        """Change how a model is balanced at run time; what was learned stays."""
        pool = self.pool(model)
        pool.reconfigure(options)
        self.wake = now
        return self._dispatch(pool, now)

    def remove_model(self, model: str, *, now: float) -> Sequence[Decision]:
        """Serve this model no more: what waits is refused, what runs goes on and is finished as usual."""
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
        """`place`: where on a device it is (Ledger.settle), if its memory is counted."""
        pool = self.pool(model)
        replica = Replica(id, weight, zone, state)
        replica.context = context
        replica.residency = place
        pool.memory.add_replica(replica)
        pool.add(replica, now)
        return self._dispatch(pool, now)

    def remove_replica(self, id: str, model: str = "", *, now: float) -> Sequence[Decision]:
        """Forget a replica; its running requests go on and are finished as usual."""
        pool = self.pool(model)
        self._forget_replica(pool, id, now)
        return self._dispatch(pool, now)

    def _forget_replica(self, pool: Pool, id: str, now: float) -> None:
        place = pool.remove(id, now).residency
        if place is not None:
            self.ledger.remove_residency(place)

    def report(self, id: str, event: Event, model: str = "", *, now: float) -> Sequence[Decision]:
        """A lifecycle event: what a probe saw, what an operator wants."""
        if event in (Event.EJECT, Event.RESTORE):
            raise MisuseError(f"{event.value} is the balancer's own decision; drain or remove the replica instead")
        if event is Event.REMOVE:
            return self.remove_replica(id, model, now=now)
        pool = self.pool(model)
        pool.apply_event(pool.find(id), event, now)
        return self._dispatch(pool, now)

    def admit_unverified(self, id: str, model: str = "", *, now: float) -> Sequence[Decision]:
        """Its readiness is unknown, and real requests shall tell: it takes one at a time. The first success makes it
        a replica like any other; after a failure the driver reports it as lost, or lets it go on."""
        pool = self.pool(model)
        pool.admit_unverified(pool.find(id), now)
        return self._dispatch(pool, now)

    def set_weight(self, id: str, weight: float, model: str = "", *, now: float) -> None:
        check_weight(id, weight)
        pool = self.pool(model)
        pool.set_weight(pool.find(id), weight, now)

    def report_peer_load(
        self, id: str, in_flight: int, model: str = "", *, now: float, age: float = 0.0
    ) -> Sequence[Decision]:
        """How many requests other balancers have on this replica, as of `age` seconds ago (the load board, a scrape).

        A count older than a request usually takes is about requests that are over by now: it is ignored, and the own
        count stands alone. Trusted, it sends every balancer to the same replica that was idle a while ago.
        """
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
        """How many requests the replica itself says it has, running and waiting; it holds for `lasting` seconds.

        This corrects the own counts (somebody else may use the replica too) and never replaces them: core/replica.py.
        """
        pool = self.pool(model)
        replica = pool.find(id)
        if not 0.0 <= requests < INFINITY:
            raise OptionError(f"replica {id!r}: cannot have {requests} requests")
        if replica.external_readings is None:
            replica.external_readings = ExternalLoad()
        replica.external_readings.observe(requests, replica.load - replica.external_load, lasting, now)
        pool.update_external_load(replica, now)
        return self._dispatch(pool, now)

    def eject(
        self, id: str, seconds: float, model: str = "", *, now: float, reason: EjectionReason | None = None
    ) -> None:
        """A fellow balancer found that this replica fails: take it out here too, for so long."""
        pool = self.pool(model)
        replica = pool.find(id)
        if replica.state is READY:
            replica.ejection_backoff += 1
            self._take_out(pool, replica, seconds, reason or EjectionReason(EjectionRule.REPORTED_BY_PEER), now)

    def restore(self, id: str, model: str = "", *, now: float) -> Sequence[Decision]:
        """A fellow balancer found that it serves again: try it, one request at a time at first."""
        pool = self.pool(model)
        replica = pool.find(id)
        if replica.state is not EJECTED:
            return NO_DECISIONS
        pool.apply_event(replica, Event.RESTORE, now, in_use=True)
        return self._dispatch(pool, now)

    def expect_replica(
        self, model: str, seconds: float, guessed: bool = False, failure: str = "", *, now: float
    ) -> Sequence[Decision]:
        """A replica is being loaded or started and should be ready in so many seconds. Requests that wait for it and
        have less time than that are refused now, unless it is a guess. `failure`: the last start failed for this
        reason, and the next has not begun: all that wait for it are refused now."""
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
        """Where this request should go. Without `wait` it is refused where it would have to wait."""
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
        self, request: Request, outcome: Outcome, now: float, *, replica: Replica | None = None, status: int = 0
    ) -> Sequence[Decision]:
        """An attempt ended. Decisions follow for this request (a retry) and for those that waited.

        `replica` says which attempt, where a hedge made two; `status` what a failed one was answered with, for people.
        The request is over when its phase is DONE.
        """
        flight = self._flight_of(request, replica)
        pool = _pool_of_request(request)
        pool.release(flight, now, over=outcome not in MAY_STILL_RUN)
        replica = flight.replica
        try:
            reason = pool.record_outcome(flight, outcome, now, status)
            if replica.state is not READY:
                if outcome is OK and replica.state is EJECTED:
                    self._serves_again(pool, flight, now)
            elif reason is not None:
                self._eject(pool, replica, reason, now)
        except Exception:
            # A policy of the user's own raised. The attempt is over all the same, and nothing else hangs on it.
            self._forget(request, pool, now)
            raise
        decisions: list[Decision] | None = None
        other = other_attempt(request, flight)
        if other is not None:
            decisions = settle_race(pool, request, flight, other, outcome, now)
        elif (
            outcome.failed
            and (outcome is not OUT_OF_MEMORY or pool.memory.could_retry(request, pool.members, replica, now))
            and pool.retry_budget.try_spend(request, outcome, now)
        ):
            pool.retried += 1
            decisions = [self._retry(pool, request, replica, now)]
        else:
            request.attempt = None
            request.phase = DONE
        if len(pool.queue) or self.ledger.freed:
            released = self._after_landing(pool, now)
            if decisions and type(decisions[0]) is Wait and request.phase is RUNNING:
                decisions = None  # it found a place after all
            if released:
                return [*decisions, *released] if decisions else released
        return decisions or NO_DECISIONS

    def response_started(self, request: Request, replica: Replica, now: float) -> Sequence[Decision]:
        """This attempt's answer has begun: no other is started, and one that runs beside it has lost and is to stop."""
        flight = self._flight_of(request, replica)
        pool = _pool_of_request(request)
        cancelled = stop_loser(pool, request, flight, now)
        return [cancelled, *self._after_landing(pool, now)] if cancelled is not None else NO_DECISIONS

    def report_out_of_memory(self, request: Request, replica: Replica, now: float) -> tuple[int, int] | None:
        """This attempt ran out of memory: such requests are believed to need more from now on. To be told before
        `finish`. What was reserved for it, and what it must have needed at least; None: its memory is not counted."""
        pool = _pool_of_request(request)
        return pool.memory.record_out_of_memory(self._flight_of(request, replica), now)

    def allow_resend(self, request: Request, now: float) -> bool:
        """The replica closed an idle connection as this was sent: may it be sent there once more? Counts as an attempt,
        and is paid for like one, but it is no failure of the replica's."""
        if not _pool_of_request(request).retry_budget.try_spend(request, Outcome.CONNECTION_LOST, now):
            return False
        request.attempt_count += 1
        return True

    def can_fail_over(self, request: Request, now: float) -> bool:
        """Its replica was lost while it waits there. Could it be tried elsewhere? Nothing is paid yet."""
        pool = _pool_of_request(request)
        return any(r not in request.avoid for r in pool.members) and pool.retry_budget.can_fail_over(request, now)

    def cancel(self, request: Request, now: float) -> Sequence[Decision]:
        """The client left. Returns `Cancel` for what runs, and what may go now instead."""
        if request.phase is WAITING:
            pool = _pool_of_request(request)
            if request in pool.preempted:
                pool.preempted.remove(request)
            else:
                pool.queue.remove(request)
            request.phase = DONE
            pool.memory.release_earmark(request)
            return self._after_landing(pool, now) if self.ledger.freed else NO_DECISIONS
        if request.phase is not RUNNING:
            raise MisuseError(f"{request!r} is not waiting or running")
        pool = _pool_of_request(request)
        cancelled = self._forget(request, pool, now)
        return [*cancelled, *self._after_landing(pool, now)]

    # ------------------------------------------------------------------ time

    def next_wake(self) -> float | None:
        """When `expire` should be called at the latest; None: never, unless something else happens."""
        return self.wake if self.wake < INFINITY else None

    def expire(self, now: float) -> Sequence[Decision]:
        """Do what time alone brings about: expiry, hedges, ejections and their end, slow start, learning."""
        if now < self.wake:
            return NO_DECISIONS
        decisions: list[Decision] = []
        self.ledger.expire(now)
        wake = self.ledger.wake
        for pool in self._pools.values():
            self._refuse_expired(pool, now, decisions)
            if now >= pool.tick_at:
                self._tick(pool, now)
            decisions.extend(self._dispatch(pool, now))
            wake = min(wake, pool.tick_at, pool.queue.next_expiry(), pool.recheck_at)
        if self.ledger.freed:
            decisions.extend(self._after_landing(None, now))
            wake = min([wake, *(pool.recheck_at for pool in self._pools.values())])
        self.hedging.hedge_late_attempts(now, decisions)
        self.wake = min(wake, self.hedging.next_at)
        return decisions or NO_DECISIONS

    # ------------------------------------------------------------------ inside

    def _forget(self, request: Request, pool: Pool, now: float) -> list[Decision]:
        """End a request at once, wherever it runs."""
        cancelled: list[Decision] = []
        for flight in (request.attempt, request.hedge):
            if flight is not None and flight in flight.replica.running_attempts:
                pool.release(flight, now, over=False)
                cancelled.append(Cancel(request, flight.replica))
        request.attempt = request.hedge = None
        request.phase = DONE
        return cancelled

    def _flight_of(self, request: Request, replica: Replica | None) -> Attempt:
        flight = request.attempt
        if request.phase is not RUNNING or flight is None:
            raise MisuseError(f"{request!r} is not running: it cannot be finished")
        if replica is None:
            if request.hedge is not None:
                raise MisuseError(f"{request!r} runs on two replicas: say which attempt ended")
            return flight
        if flight.replica is replica:
            return flight
        if request.hedge is not None and request.hedge.replica is replica:
            return request.hedge
        raise MisuseError(f"{request!r} does not run on replica {replica.id!r}")

    def _place(self, pool: Pool, request: Request, ahead: float, now: float) -> Replica | None:
        """The open replica to use, with room reserved there; None: wait, for a better one or for room."""
        candidates = pool.open
        if request.avoid:
            # Another replica than those that failed it, unless there is no other at all.
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
            # Another process was faster, or there were too many to look at each: now each is looked at.
            fitting = [r for r in candidates if r is not replica and memory.fits(request, r, now)]
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
        request.attempt = flight = pool.dispatch(request, replica, now)
        request.attempt_count += 1
        request.phase = RUNNING
        pool.notify_dispatched(flight, now)
        if pool.options.hedge.enabled and request.idempotent:
            self._wake_by(self.hedging.plan(pool, flight, now))
        return Send(request, replica)

    def _wait(self, pool: Pool, request: Request, now: float) -> Decision:
        line = pool.queue
        latest = latest_start(pool, request)
        since = now if request.attempt_count else request.arrived  # a retry has its own time to wait
        limit = pool.queue_deadline(since)
        request.queued_at = since
        request.deadline_bound = latest < limit
        request.expires = expires = latest if request.deadline_bound else limit
        if line.full:
            victim = line.preemption_victim(request)
            if victim is None:
                reason = Reason.TENANT_SHARE if line.tenant_at_fair_share(request) else Reason.QUEUE_FULL
                return self._reject(pool, request, reason, now)
            # The victim's refusal must reach the driver, which only looks at this request now: it is left to `expire`,
            # due at once.
            line.remove(victim)
            pool.memory.release_earmark(victim)
            pool.preempted.append(victim)
            self.wake = now
        line.add(request)
        request.phase = WAITING
        if expires < self.wake:
            self.wake = expires
        return Wait(request)

    def _dispatch(self, pool: Pool, now: float) -> Sequence[Decision]:
        """Send what waits to what is open, in order, each to a place that is good for it."""
        line = pool.queue
        pool.recheck_at = INFINITY
        if not len(line) or not pool.open:
            return NO_DECISIONS
        sent: list[Decision] = []
        while len(line) and pool.open:
            ahead = 0.0
            blocked = pool.memory.begin_pass()
            for looked, request in enumerate(line.ordered()):
                if looked >= MAX_QUEUE_LOOKAHEAD:
                    return sent
                if blocked.covers(request):
                    ahead += request.base
                    continue
                try:
                    replica = self._place(pool, request, ahead, now)
                except Exception:
                    if sent:
                        return sent  # what was decided must reach the driver; the next tick will raise again
                    raise
                if replica is not None:
                    line.remove(request, served=True)
                    if request.version != pool.estimator.version:
                        pool.estimator.prepare(request)  # more is known now than when it arrived
                    sent.append(self._send(pool, request, replica, now))
                    break
                ahead += request.base
                blocked.note(request)
            else:
                return sent
        return sent

    def _after_landing(self, pool: Pool | None, now: float) -> Sequence[Decision]:
        """An attempt on this pool's replicas is over: what waits for it may go, and what waits elsewhere for the
        memory it had, who has waited longest first."""
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
            if self._waits_on(pool, request, now):
                continue
            reason = Reason.DEADLINE if request.deadline_bound else Reason.QUEUE_TIMEOUT
            if reason is Reason.QUEUE_TIMEOUT and not pool.members and not pool.options.hold:
                reason = Reason.NO_REPLICA
            if pool.open and pool.memory.is_blocked(request):
                reason = Reason.INSUFFICIENT_MEMORY
            decisions.append(self._reject(pool, request, reason, now))

    @staticmethod
    def _waits_on(pool: Pool, request: Request, now: float) -> bool:
        """May it wait longer than was thought: a replica is being started, or is back?"""
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
            replica = self._place(pool, request, 0.0, now)
            if replica is not None:
                return self._send(pool, request, replica, now)
        if not pool.members and (pool.removed or not pool.may_wait_for_ready(now)):
            return self._reject(pool, request, Reason.NO_REPLICA, now)
        return self._wait(pool, request, now)

    # ------------------------------------------------------------------ about once a second

    def _tick(self, pool: Pool, now: float) -> None:
        pool.tick(now)
        ejected = [r for r in pool.replicas.values() if r.state is EJECTED]
        for replica in ejected:
            if now >= replica.ejected_until:
                pool.apply_event(replica, Event.RESTORE, now)
        for replica, reason in pool.probation.tick(now):
            self._eject(pool, replica, reason, now)
            if self.on_silent_ejection is not None:
                self.on_silent_ejection(replica)
        out = sum(r.state is EJECTED for r in ejected)
        for replica, reason in pool.outliers.outliers([r for r in pool.members if r.state is READY], out, now):
            self._eject(pool, replica, reason, now)

    def _eject(self, pool: Pool, replica: Replica, reason: EjectionReason, now: float) -> None:
        self._take_out(pool, replica, pool.outliers.ejection_seconds(replica), reason, now)

    def _take_out(self, pool: Pool, replica: Replica, seconds: float, reason: EjectionReason, now: float) -> None:
        self.ejections += 1
        pool.ejected += 1
        replica.ejection_count += 1
        replica.ejection = reason
        replica.ejected_at = now
        replica.ejected_until = now + seconds
        pool.apply_event(replica, Event.EJECT, now)

    @staticmethod
    def _serves_again(pool: Pool, flight: Attempt, now: float) -> None:
        """An ejected replica, used in a panic, answered well: it is back at once. With the panic over, so are those
        that shared it: an ejection does not outlast the trouble that all had, and each is tried by one request."""
        replica = flight.replica
        if flight.started < replica.ejected_at or (replica.ejection is not None and replica.ejection.rule.is_speed):
            return
        replica.ejection_backoff = max(0, replica.ejection_backoff - 1)
        pool.apply_event(replica, Event.RESTORE, now, in_use=True)
        pool.probation.end(replica)
        if pool.panicking:
            return
        for other in [r for r in pool.replicas.values() if r.state is EJECTED]:
            if other.ejection is not None and not other.ejection.rule.is_speed:
                other.ejection_backoff = max(0, other.ejection_backoff - 1)
                pool.apply_event(other, Event.RESTORE, now, in_use=True)


def _oldest_arrival(pool: Pool) -> float:
    """When the first in its line came; who has nobody in line goes last."""
    for request in pool.queue.ordered():
        return request.arrived
    return INFINITY


def _pool_of_request(request: Request) -> Pool:
    pool = request.pool
    assert pool is not None, "a request that waits or runs has been submitted"
    return pool
