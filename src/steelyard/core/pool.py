"""The replicas of one model, its waiting line, its estimator and its policy.

Two lists are kept up to date as things happen, so that a decision filters nothing: `members`, the replicas in rotation,
and `open`, those of them with a free slot. Both are in a stable order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice
from typing import Final

from .attempts.hedging import HedgeBudget, cancel_hedge
from .attempts.retry import RetryBudget
from .errors import OptionError, UnknownReplicaError
from .estimator.concurrency_limit import PROBING_REPLICAS_ONE_IN, next_limit, probe_above, probe_below
from .estimator.estimator import MIN_REQUESTS_FOR_FEATURES, Estimator
from .estimator.exploration import Exploration
from .memory.filter import NO_FILTER, CandidateFilter
from .options import PoolOptions
from .outcome import Outcome
from .outliers.detector import OutlierDetector
from .outliers.ejection_reason import EjectionReason, EjectionRule, describe_failure
from .outliers.ejector import Ejector
from .outliers.probation import MIN_OVERDUE_SECONDS, ProbationTracker
from .policies.base import Policy
from .queue import RequestQueue
from .replica import MIN_EXTERNAL_LOAD_CAP, Event, Replica, State, external_load_cap, next_state
from .request import INFINITY, Attempt, Request

FAILURE_LATENCY_FACTOR = 3.0  # a failure counts as this many times slower than predicted
MIN_SLOW_START_SHARE = 0.1
EXPECTED_STATES = (State.READY, State.EJECTED, State.UNREACHABLE)  # who is loading or draining is no reason to panic
MAX_FAILURE_PENALTY = 5
MAX_TIMEOUT_PENALTY = 2  # for what clients gave up: a quarter of its share at the least
MAX_MEMBERS_RESCANNED = 64  # members, all of whom are looked at when one leaves
OVERDUE_QUANTILE = 0.999  # of the answers come sooner, measured by what was predicted: later is overdue
MAX_NAMES_IN_ERROR = 10  # replicas, where an error says which there are
RECOVERABLE_STATES = (State.STARTING, State.LOADING, State.UNREACHABLE, State.EJECTED)  # of those that are not ready
LATE_START_GRACE_SECONDS = (
    5.0  # seconds for which a replica that should be ready by now is waited for, until more is known of it
)
PEER_LOAD_TTL_INTERVALS = 3.0  # intervals after which news of other balancers is forgotten
# Bound once: a lookup through the enumeration costs more than the comparison, compiled or not.
READY: Final = State.READY
EJECTED: Final = State.EJECTED
CLIENT_ERROR: Final = Outcome.CLIENT_ERROR
CLIENT_DEADLINE_EXCEEDED: Final = Outcome.CLIENT_DEADLINE_EXCEEDED
DEADLINE_EXCEEDED: Final = Outcome.DEADLINE_EXCEEDED
TIMEOUT: Final = Outcome.TIMEOUT


class Pool:
    def __init__(self, model: str, policy: Policy, options: PoolOptions, now: float = 0.0) -> None:
        self.model = model
        self.options = options
        self.estimator = Estimator()
        self.exploration = Exploration()
        self.queue = RequestQueue(options.queue)
        self.outliers = OutlierDetector(options.ejection)
        self.probation = ProbationTracker(self)
        self.ejector = Ejector(self)
        self.retry_budget = RetryBudget(options.retry)
        self.hedge_budget = HedgeBudget(options.hedge)
        self.replicas: dict[str, Replica] = {}
        self.members: list[Replica] = []
        self.open: list[Replica] = []
        self._open_orders: list[int] = []  # `order` of each in `open`: bisected to keep it sorted
        self.panicking = False
        self.expected_count = 0  # replicas that should serve
        self.overdue = INFINITY  # times what was predicted, after which hardly any answer still comes
        self._states: dict[State, int] = dict.fromkeys(State, 0)  # replicas in each
        self.arrived = 0  # requests that came
        self.offered_work = 0.0  # and seconds of work they should take on a typical replica
        self.completed_work = 0.0  # seconds of such work that were answered
        self.busy_seconds = 0.0  # and seconds that this took: done / busy is how fast each of those that run advances
        self.predicted_seconds = 0.0  # of the same attempts, seconds that each was believed to take when it was sent
        self.prediction_error_seconds = 0.0  # and by how much that was off, either way
        self.retried = 0  # attempts after one that failed
        self.hedged = 0  # second attempts beside one that runs …
        self.hedges_won = 0  # … and those of them that answered
        self.ejected = 0  # replicas taken out
        self.active = 0  # attempts running
        self.finished = 0  # attempts that ended
        self.drain_rate = 0.0  # seconds of (typical) work the members can do per second
        self._rate = 0.0  # Σ 1 / slowness
        self.fastest = 1.0  # least slowness among the members
        self.limit: float = INFINITY  # requests a replica takes at once
        self.preempted: list[Request] = []  # lost their place in the line; refused at the next `expire`, due at once
        self.refused_idle = 0  # requests refused for their deadline in a row with nothing running
        self.recheck_at = INFINITY  # when to think again about waiting for a better place
        self.next_ready_at = 0.0  # when a replica that is being loaded or started should be ready
        self.next_ready_is_guess = False  # is that a guess?
        self.start_failure = ""  # why the last start failed, while the next has not begun
        self.lost_at = -INFINITY  # when the last of the members was lost
        self.memory: CandidateFilter = NO_FILTER
        self.removed = False  # taken out of service; what runs still ends here
        self._ticks = 0
        self._orders = 0
        self.tick_at = now + options.interval
        self._made = now
        self.use_policy(policy, now)
        self._set_limit(options.concurrency)

    # ------------------------------------------------------------------ policy

    def use_policy(self, policy: Policy, now: float) -> None:
        """Put this policy in charge from now on; requests in flight stay where they are."""
        self.policy = policy
        for replica in self.replicas.values():
            replica.notes = None
        policy.attach(self)
        for replica in self.members:
            policy.joined(replica, now)
        # A hook a policy does not have is not called: it would be the most frequent call of all.
        kind = type(policy)
        self._tells_sent = kind.sent is not Policy.sent
        self._tells_finished = kind.finished is not Policy.finished
        self.patient = kind.patience is not Policy.patience

    def reconfigure(self, options: PoolOptions) -> None:
        """Other options from now on. What was learned stays, and nobody who waits loses the place."""
        self.options = options
        self.queue.limit = options.queue
        self.outliers.options = options.ejection
        self.retry_budget.options = options.retry
        self.hedge_budget.options = options.hedge
        for replica in self.replicas.values():
            if not options.warm_keys:
                replica.warm = None
            elif replica.warm is None:
                replica.warm = {}
        self._set_limit(options.concurrency)

    # ------------------------------------------------------------------ membership

    def add(self, replica: Replica, now: float) -> None:
        if replica.state is State.GONE:
            raise OptionError(f"replica {replica.id!r}: cannot be added as {replica.state.value}")
        if replica.id in self.replicas:
            raise OptionError(f"replica {replica.id!r} is already in the pool{self._of_model()}")
        self._orders += 1
        replica.order = self._orders
        replica.limit = self.limit
        replica.ready_since = now - self.options.slow_start  # who is added as ready has been ready
        if self.options.warm_keys:
            replica.warm = {}
        self.replicas[replica.id] = replica
        self.estimator.admit(replica, now)
        self._turn(replica, None, now)

    def remove(self, id: str, now: float) -> Replica:
        """Forget a replica. What runs there goes on, and gives back to it when it ends."""
        replica = self.find(id)
        before = replica.state
        replica.state = next_state(before, Event.REMOVE)
        self.probation.end(replica)
        del self.replicas[id]
        self._turn(replica, before, now)
        replica.notes = None  # whoever is in charge when its last requests end must not find another's notes
        return replica

    def find(self, id: str) -> Replica:
        try:
            return self.replicas[id]
        except KeyError:
            some = list(islice(self.replicas, MAX_NAMES_IN_ERROR))
            known = ", ".join([*sorted(some), *["…"] * (len(self.replicas) > MAX_NAMES_IN_ERROR)]) or "none"
            raise UnknownReplicaError(f"no replica {id!r} in the pool{self._of_model()} (known: {known})") from None

    def _of_model(self) -> str:
        return f" of {self.model!r}" if self.model else ""  # the library has one pool, without a name

    def apply_event(self, replica: Replica, event: Event, now: float, *, in_use: bool = False) -> None:
        """Apply a lifecycle event, with what follows from the new state. `in_use`: it needs no slow start."""
        old = replica.state
        replica.state = new = next_state(old, event)
        if replica.unverified:
            self._end_trial(replica)
        if new is old:
            return
        self.probation.end(replica)
        if new is READY:
            replica.has_been_ready = True
            replica.ready_since = now - self.options.slow_start if in_use or self._was_ready(old, now) else now
            replica.consecutive_failures = 0
            replica.slow_since = INFINITY
            replica.successes = replica.failures = 0
            replica.failure_penalty = 0
            if old is EJECTED:
                self.probation.begin_restored(replica, now)
                replica.slowness_filter.restore(
                    replica.ejection is not None and replica.ejection.rule is EjectionRule.SLOWED
                )
                replica.slowness = replica.slowness_filter.value()
            else:
                self.estimator.admit(replica, now)  # it restarted: nothing known of its speed holds
                if replica.warm is not None:
                    replica.warm.clear()
            self._ramp(replica, now)
        self._turn(replica, old, now)

    def admit_unverified(self, replica: Replica, now: float) -> None:
        """Put it in rotation for one request at a time; the first that succeeds ends the trial."""
        self.apply_event(replica, Event.LOADED, now)
        if replica.state is READY:
            replica.unverified = True
            self._set_replica_limit(replica, 1.0)

    def _end_trial(self, replica: Replica) -> None:
        replica.unverified = False
        self._set_replica_limit(replica, self.limit)

    def _set_replica_limit(self, replica: Replica, limit: float) -> None:
        replica.limit = replica.external_load + limit
        self.update_open(replica)

    def _was_ready(self, before: State, now: float) -> bool:
        """Is it ready only in our eyes just now? Then it needs no slow start; nor does the only one there is.

        Just after our own start, who is ready when first looked at has been so before. Later, it has just come.
        """
        return not self.members or (before is State.STARTING and now - self._made <= self.options.slow_start)

    def set_weight(self, replica: Replica, weight: float, now: float) -> None:
        replica.weight = weight
        self.estimator.reweigh(replica)
        self._ramp(replica, now)
        self.policy.reweighted(replica, now)

    def set_peer_load(self, replica: Replica, count: int, now: float, age: float = 0.0) -> None:
        """Other balancers had this many requests there, `age` seconds ago."""
        replica.peer_load_at = now - age
        self._set_outside(replica, count + replica.external_load, now)

    def _set_outside(self, replica: Replica, count: int, now: float) -> None:
        self._advance(replica, now)
        replica.load += count - replica.other_load
        replica.other_load = count
        self.update_open(replica)

    def update_external_load(self, replica: Replica, now: float) -> None:
        """Conclude anew how many requests are there that no balancer sent.

        They count as load, but leave the limit to ours: what a replica says of itself must never shut it.
        """
        readings = replica.external_readings
        count = readings.estimate(now) if readings is not None else 0
        if count > MIN_EXTERNAL_LOAD_CAP:  # only then is it worth a look at all
            count = min(count, external_load_cap(max((r.load - r.external_load for r in self.members), default=0)))
        change = count - replica.external_load
        if change:
            replica.external_load = count
            replica.limit += change
            self._set_outside(replica, replica.other_load + change, now)

    def _turn(self, replica: Replica, before: State | None, now: float) -> None:
        """Its state changed: who is in rotation now? Without a look at all the others, unless a panic begins or ends:
        thousands may come and go one by one."""
        states, panicked = self._states, self.panicking
        if before is not None:
            states[before] -= 1
        states[replica.state] += 1
        self.expected_count = expected = sum(states[state] for state in EXPECTED_STATES)
        self.panicking = bool(states[EJECTED]) and states[READY] < self.options.ejection.panic * expected
        if self.panicking is not panicked:
            self._rotate(now)
            return
        was = before is READY or (before is EJECTED and panicked)
        is_now = self.in_rotation(replica)
        if is_now and not was:
            self._join(replica, now)
        elif was and not is_now:
            self._leave(replica, now)

    def _join(self, replica: Replica, now: float) -> None:
        if self.members and self.members[-1].order > replica.order:
            insort(self.members, replica, key=_by_order)
        else:
            self.members.append(replica)
        self.policy.joined(replica, now)
        self.next_ready_at = 0.0  # what was said of one that comes was said of this one
        self.start_failure = ""
        self.update_open(replica)
        self._measure(replica)

    def _leave(self, replica: Replica, now: float) -> None:
        del self.members[bisect_left(self.members, replica.order, key=_by_order)]
        self.policy.left(replica, now)
        self.update_open(replica)
        if not self.members:
            self.lost_at = now
        if len(self.members) <= MAX_MEMBERS_RESCANNED:
            self.probation.relax()
            self._measure()
        else:
            self._rate = max(0.0, self._rate - 1.0 / replica.slowness)  # near enough, until the next tick
            self._set_drain_rate()

    def _rotate(self, now: float) -> None:
        """Work out anew who is in rotation: the ready, and the ejected too when too few are left (panic)."""
        before = self.members
        self.members = members = [r for r in self.replicas.values() if self.in_rotation(r)]
        if before and not members:
            self.lost_at = now
        then, after = set(before), set(members)
        for replica in before:
            if replica not in after:
                self.policy.left(replica, now)
        for replica in members:
            if replica not in then:
                self.policy.joined(replica, now)
        self.open = [r for r in members if r.load < r.limit and not r.suspended]
        self._open_orders = [r.order for r in self.open]
        self._measure()

    def update_open(self, replica: Replica) -> None:
        """Its load or limit changed: is it open now?"""
        spot = bisect_left(self._open_orders, replica.order)
        listed = spot < len(self.open) and self.open[spot] is replica
        wanted = self.is_open(replica)
        if listed and not wanted:
            del self.open[spot]
            del self._open_orders[spot]
        elif wanted and not listed:
            self.open.insert(spot, replica)
            self._open_orders.insert(spot, replica.order)

    def is_open(self, replica: Replica) -> bool:
        """Is it in rotation, with a free slot?"""
        return replica.load < replica.limit and not replica.suspended and self.in_rotation(replica)

    def in_rotation(self, replica: Replica) -> bool:
        state = replica.state
        return state is READY or (state is EJECTED and self.panicking)

    # ------------------------------------------------------------------ load, counted at dispatch

    def dispatch(self, request: Request, replica: Replica, now: float) -> Attempt:
        estimator = self.estimator
        cold = self._warm_up(request, replica) if request.cold_seconds else 0.0
        alone = request.base * replica.slowness + cold
        n = replica.load + 1
        if n == 1:
            predicted = alone
        else:
            predicted = alone + estimator.queueing_delay(replica, now)
            self._advance(replica, now)
            if now - replica.answered_at > MIN_OVERDUE_SECONDS:
                self._look_for_silence(replica, now)
        replica.attained_at = now
        flight = Attempt(request, replica, now, alone, predicted, n, replica.attained_service, cold)
        replica.load = n
        replica.in_flight += 1
        replica.outstanding_work += alone
        replica.dispatched += 1
        replica.running_attempts[flight] = None
        if replica.probation is not None:
            self.probation.on_dispatch(replica, flight)
        if n >= replica.limit:
            self.update_open(replica)
        self.active += 1
        if request.memory is not None:
            self.memory.attach(flight, now)
        return flight

    def _look_for_silence(self, replica: Replica, now: float) -> None:
        """Is the oldest request there overdue, and nothing came since it was sent?"""
        for oldest in replica.running_attempts:
            silent = now - max(oldest.started, replica.answered_at)
            if silent > MIN_OVERDUE_SECONDS and silent > self.overdue * oldest.predicted:
                self.probation.begin(replica, oldest.started, now)
            break

    def notify_dispatched(self, flight: Attempt, now: float) -> None:
        if self._tells_sent:
            self.policy.sent(flight, now)

    def release(self, flight: Attempt, now: float, *, over: bool = True) -> None:
        """Give back what `launch` took. Not `over`: nobody waits for it any more, but its replica may not know."""
        replica = flight.replica
        del replica.running_attempts[flight]  # a second landing would fail here, before anything changed
        if flight.hedge_entry is not None:
            cancel_hedge(flight)
        if flight.reservation is not None:
            self.memory.release(flight, now, over=over)
        replica.in_flight -= 1
        replica.outstanding_work = replica.outstanding_work - flight.seconds_alone if replica.in_flight else 0.0
        replica.last_finish = now
        self._advance(replica, now)
        replica.load -= 1
        if replica.load == replica.limit - 1:
            self.update_open(replica)
        if replica.probation is not None:
            self.probation.on_release(replica, flight)
        self.active -= 1
        self.finished += 1

    def _advance(self, replica: Replica, now: float) -> None:
        """Bring the clock of attained work up to date, before the load changes."""
        progress = self.estimator.curve.progress
        n = replica.load
        replica.attained_service += (now - replica.attained_at) * (progress[n] if n < len(progress) else progress[-1])
        replica.attained_at = now

    def backdate(self, flight: Attempt, seconds: float, now: float) -> None:
        """The attempt really took `seconds`, whatever passed here: date it back, and its part of the clock with it."""
        replica = flight.replica
        self._advance(replica, now)
        passed = now - flight.started
        attained = replica.attained_service - flight.attained_at_dispatch
        flight.attained_at_dispatch = replica.attained_service - (
            attained * seconds / passed if passed > 0.0 else seconds
        )
        flight.started = now - seconds

    def _warm_up(self, request: Request, replica: Replica) -> float:
        """Seconds to add because the request's key is not warm there; from now on it is."""
        warm = replica.warm
        if warm is None or request.key is None:
            return 0.0
        cold = request.key not in warm
        warm.pop(request.key, None)
        warm[request.key] = None
        if len(warm) > self.options.warm_keys:
            del warm[next(iter(warm))]
        return request.cold_seconds if cold else 0.0

    # ------------------------------------------------------------------ learning

    def record_outcome(self, flight: Attempt, outcome: Outcome, now: float, status: int = 0) -> EjectionReason | None:
        """Take in how an attempt ended (`status`: what a failed one was answered with). A reason: eject its replica."""
        seconds = now - flight.started
        if outcome is DEADLINE_EXCEEDED and seconds > FAILURE_LATENCY_FACTOR * flight.predicted:
            outcome = TIMEOUT  # not only a short deadline: this replica hangs
        replica = flight.replica
        # Read once: a member of an enumeration is slow to look into, compiled or not.
        failed, informative, answered = outcome.failed, outcome.informative, outcome.answered
        if informative:
            self.completed_work += flight.request.base
            self.busy_seconds += seconds
            self.predicted_seconds += flight.predicted
            self.prediction_error_seconds += abs(seconds - flight.predicted)
            self.estimator.observe(flight, seconds, now)
            replica.latency.add(seconds, now)
        # A client's deadline is no failure; but far past the estimate it is a lower bound that counts: it must not look
        # like nothing, or a replica that hangs would look idle.
        bound = (
            not answered and outcome is CLIENT_DEADLINE_EXCEEDED and seconds > FAILURE_LATENCY_FACTOR * flight.predicted
        )
        if failed or bound:
            # An instant error must not look like a fast answer, to no policy. Of its speed it tells nothing: a fleet
            # that failed for a while is as fast as before when it is back.
            seconds = max(seconds, FAILURE_LATENCY_FACTOR * flight.predicted)
            replica.latency.add(seconds, now)
        if self._tells_finished and (informative or failed or bound):
            self.policy.finished(flight, seconds, outcome, now)
        if replica.unverified and (informative or outcome is CLIENT_ERROR):
            self._end_trial(replica)
        eject = self.outliers.record(replica, outcome, describe_failure(outcome, status) if failed else "")
        if failed:
            replica.failed += 1
        if failed or bound:
            most = MAX_FAILURE_PENALTY if failed else max(MAX_TIMEOUT_PENALTY, replica.failure_penalty)
            replica.failure_penalty = min(most, replica.failure_penalty + 1)
            self._ramp(replica, now)
        elif replica.failure_penalty and informative:
            self._clear_strikes(replica, now)
        if answered:
            replica.answered_at = now
            replica.unanswered = 0
        elif replica.answered_at > flight.started and (bound or outcome is TIMEOUT):
            pass  # it answered others meanwhile: this one was merely long
        elif failed or bound:
            self.probation.note_unanswered(flight, now)
        if replica.probation is not None and eject is None:
            return self.probation.on_outcome(flight, outcome, now)
        return eject

    def _clear_strikes(self, replica: Replica, now: float) -> None:
        """It answered. Where all had failed, all may be well again: the first to answer is not to get everything."""
        shared = all(r.failure_penalty for r in self.members)
        for each in self.members if shared else (replica,):
            each.failure_penalty = 0
            self._ramp(each, now)

    # ------------------------------------------------------------------ about once a second

    def tick(self, now: float) -> None:
        self.tick_at = now + self.options.interval
        self.estimator.tick(self.members, [r for r in self.replicas.values() if not self.in_rotation(r)])
        known = self.estimator.samples >= MIN_REQUESTS_FOR_FEATURES
        self.overdue = max(1.0, self.estimator.remaining.quantile(OVERDUE_QUANTILE)) if known else INFINITY
        for replica in self.members:
            if (
                replica.other_load > replica.external_load
                and now - replica.peer_load_at > PEER_LOAD_TTL_INTERVALS * self.options.interval
            ):
                self.set_peer_load(replica, 0, now)  # who reported it may be gone
            if (
                replica.external_load
                and replica.external_readings is not None
                and now >= replica.external_readings.expires
            ):
                self.update_external_load(replica, now)
            if now - replica.ready_since > self.options.ejection.longest and replica.ejection_backoff:
                replica.ejection_backoff -= 1  # a long time without trouble earns a shorter sentence
                replica.ready_since = now - self.options.slow_start
            if replica.slow_start_factor != 1.0:
                replica.failure_penalty = max(0, replica.failure_penalty - 1)  # so that it is tried again
                self._ramp(replica, now)
        if self.options.concurrency == "auto":
            self._set_limit("auto")
        self._measure()
        self.exploration.plan(self.members, self.finished, now)
        self.policy.tick(self.members, now)

    def _ramp(self, replica: Replica, now: float) -> None:
        """The weight in force: in slow start it grows from a tenth to all of it over the window."""
        window = self.options.slow_start
        part = min(1.0, max(MIN_SLOW_START_SHARE, (now - replica.ready_since) / window)) if window else 1.0
        # Each failure in a row halves it: one that fails at once is always idle, and would draw everyone's requests.
        part *= 0.5**replica.failure_penalty
        replica.effective_weight = replica.weight * part
        replica.slow_start_factor = 1.0 / part

    def _set_limit(self, concurrency: int | str) -> None:
        busiest = max((r.load for r in self.members), default=0)
        if concurrency == "auto":
            limit = float(next_limit(self.estimator.curve, self.limit, busiest))
        else:
            limit = INFINITY if concurrency == "unlimited" else float(concurrency)
        if limit != self.limit:
            self.limit = limit
            self.estimator.curve.discount_evidence()
        self._ticks += 1
        # Some replicas take more than the others while requests wait, or fewer while none do: without different n
        # there is nothing to learn from.
        odd = limit
        if concurrency == "auto":
            odd = float(probe_above(int(limit)) if len(self.queue) else probe_below(int(limit), busiest))
        for replica in self.replicas.values():
            own = odd if (replica.order + self._ticks) % PROBING_REPLICAS_ONE_IN == 0 else limit
            if not replica.unverified and replica.external_load + own != replica.limit:
                self._set_replica_limit(replica, own)

    def _measure(self, newcomer: Replica | None = None) -> None:
        """How fast the line drains, and how fast the fastest is; near enough for a second."""
        if newcomer is None:
            self._rate = 0.0
            self.fastest = INFINITY
        rate, fastest = self._rate, self.fastest if self._rate else INFINITY
        for replica in self.members if newcomer is None else (newcomer,):
            rate += 1.0 / replica.slowness
            if replica.slowness < fastest:
                fastest = replica.slowness
        self._rate = rate
        self.fastest = fastest if rate else 1.0
        self._set_drain_rate()

    def _set_drain_rate(self) -> None:
        at_once = min(self.limit, 1024.0)
        each = at_once / self.estimator.curve.slowdown(at_once) if self.limit < INFINITY else 1.0
        self.drain_rate = self._rate * each / self.estimator.remaining.mean

    def retry_after(self, now: float) -> float:
        """Seconds after which another try has a chance: what waits has started by then; at the least, one is over.

        While none is ready and one is coming: when that one should be.
        """
        return self.ready_in(now) or max(self.time_to_drain(), self.estimator.typical_seconds * self.fastest)

    def ready_in(self, now: float) -> float:
        """Seconds until a replica that is being loaded or started should be ready; 0.0: one is, or nobody knows."""
        return 0.0 if self.members or self.next_ready_at <= now else self.next_ready_at - now

    def may_wait_for_ready(self, now: float) -> bool:
        """May a request wait although no replica is ready? Also without `hold`, while one may only be restarting."""
        if self.options.hold:
            return True
        restarting = now < self.lost_at + self.options.restart_grace
        return restarting and any(self._states[state] for state in RECOVERABLE_STATES)

    def queue_deadline(self, since: float) -> float:
        """When a request without a deadline that waits since then has waited long enough."""
        options = self.options
        usual = since + options.max_wait
        if self.members:
            return usual
        if not options.hold:
            return min(usual, self.lost_at + options.restart_grace)
        if self.next_ready_at <= 0.0:
            return usual
        return max(usual, min(self.next_ready_at + LATE_START_GRACE_SECONDS, since + options.start_wait))

    def time_to_drain(self) -> float:
        """Seconds until what waits now has started."""
        return self.queue.work / self.drain_rate if self.drain_rate else self.options.max_wait


def _by_order(replica: Replica) -> int:
    return replica.order
