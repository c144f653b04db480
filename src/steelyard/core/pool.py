"""The replicas of one model, its waiting line, its estimator and its policy.

Two lists are kept up to date as things happen, so that a decision filters nothing: `members`, the replicas in rotation,
and `open`, those of them with a free slot. Both are in a stable order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice

from .claims import Claims
from .concurrency import TRIED_BY, next_limit, step_down, step_up
from .ejection import Ejection
from .ejection_reason import EjectionReason, Rule, failure_words
from .errors import OptionError, UnknownReplicaError
from .estimate import ENOUGH, Estimator
from .foreign import AT_LEAST, trusted
from .options import PoolOptions
from .outcome import Outcome
from .policies.base import Policy
from .probation import LEAST_SILENCE, Suspicion
from .queue import WaitingLine
from .replica import Event, Replica, State, next_state
from .request import INFINITY, Flight, Request
from .retry import HedgeBudget, RetryBudget
from .trials import Trials

PENALTY = 3.0  # a failure counts as this many times slower than predicted
RAMP_FLOOR = 0.1
SHOULD_SERVE = (State.READY, State.EJECTED, State.UNREACHABLE)  # who is loading or draining is no reason to panic
MOST_STRIKES = 5
MOST_FOR_BOUNDS = 2  # for what clients gave up: a quarter of its share at the least
FEW = 64  # members, all of whom are looked at when one leaves
NEARLY_ALL = 0.999  # of the answers come sooner, measured by what was predicted: later is overdue
NAMED = 10  # replicas, where an error says which there are
MAY_RETURN = (State.STARTING, State.LOADING, State.UNREACHABLE, State.EJECTED)  # of those that are not ready
OVERDUE = 5.0  # seconds for which a replica that should be ready by now is waited for, until more is known of it
FRESH = 3.0  # intervals after which news of other balancers is forgotten


class Pool:
    def __init__(self, model: str, policy: Policy, options: PoolOptions, now: float = 0.0) -> None:
        self.model = model
        self.options = options
        self.estimator = Estimator()
        self.trials = Trials()
        self.line = WaitingLine(options.queue)
        self.ejection = Ejection(options.ejection)
        self.suspicion = Suspicion(self)
        self.retries = RetryBudget(options.retry)
        self.hedges = HedgeBudget(options.hedge)
        self.replicas: dict[str, Replica] = {}
        self.members: list[Replica] = []
        self.open: list[Replica] = []
        self._open_orders: list[int] = []  # `order` of each in `open`: bisected to keep it sorted
        self.panicking = False
        self.expected = 0  # replicas that should serve
        self.overdue = INFINITY  # times what was predicted, after which hardly any answer still comes
        self._states: dict[State, int] = dict.fromkeys(State, 0)  # replicas in each
        self.arrived = 0  # requests that came
        self.offered = 0.0  # and seconds of work they should take on a typical replica
        self.done = 0.0  # seconds of such work that were answered
        self.busy = 0.0  # and seconds that this took: done / busy is how fast each of those that run advances
        self.believed = 0.0  # of the same attempts, seconds that each was believed to take when it was sent
        self.missed = 0.0  # and by how much that was off, either way
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
        self.displaced: list[Request] = []  # lost their place in the line; refused at the next `expire`, due at once
        self.refused_idle = 0  # requests refused for their deadline in a row with nothing running
        self.recheck = INFINITY  # when to think again about waiting for a better place
        self.coming = 0.0  # when a replica that is being loaded or started should be ready
        self.guessed = False  # is that a guess?
        self.start_failure = ""  # why the last start failed, while the next has not begun
        self.lost_at = -INFINITY  # when the last of the members was lost
        self.claims: Claims | None = None  # on memory, where that is counted
        self.retired = False  # taken out of service; what runs still ends here
        self._ticks = 0
        self._orders = 0
        self.tick_at = now + options.interval
        self._made = now
        self.use(policy, now)
        self._set_limit(options.concurrency)

    # ------------------------------------------------------------------ policy

    def use(self, policy: Policy, now: float) -> None:
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
        self.line.limit = options.queue
        self.ejection.options = options.ejection
        self.retries.options = options.retry
        self.hedges.options = options.hedge
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
        self.suspicion.forget(replica)
        del self.replicas[id]
        self._turn(replica, before, now)
        replica.notes = None  # whoever is in charge when its last requests end must not find another's notes
        return replica

    def find(self, id: str) -> Replica:
        try:
            return self.replicas[id]
        except KeyError:
            some = list(islice(self.replicas, NAMED))
            known = ", ".join([*sorted(some), *["…"] * (len(self.replicas) > NAMED)]) or "none"
            raise UnknownReplicaError(f"no replica {id!r} in the pool{self._of_model()} (known: {known})") from None

    def _of_model(self) -> str:
        return f" of {self.model!r}" if self.model else ""  # the library has one pool, without a name

    def move(self, replica: Replica, event: Event, now: float, *, in_use: bool = False) -> None:
        """Apply a lifecycle event, with what follows from the new state. `in_use`: it needs no slow start."""
        old = replica.state
        replica.state = new = next_state(old, event)
        if replica.on_trial:
            self._end_trial(replica)
        if new is old:
            return
        self.suspicion.forget(replica)
        if new is State.READY:
            replica.has_been_ready = True
            replica.ready_since = now - self.options.slow_start if in_use or self._was_ready(old, now) else now
            replica.consecutive_failures = 0
            replica.slow_since = INFINITY
            replica.successes = replica.failures = 0
            replica.strikes = 0
            if old is State.EJECTED:
                self.suspicion.came_back(replica, now)
                replica.speed.come_back(replica.ejection is not None and replica.ejection.rule is Rule.SLOWED)
                replica.slowness = replica.speed.value()
            else:
                self.estimator.admit(replica, now)  # it restarted: nothing known of its speed holds
                if replica.warm is not None:
                    replica.warm.clear()
            self._ramp(replica, now)
        self._turn(replica, old, now)

    def try_out(self, replica: Replica, now: float) -> None:
        """Put it in rotation for one request at a time; the first that succeeds ends the trial."""
        self.move(replica, Event.LOADED, now)
        if replica.state is State.READY:
            replica.on_trial = True
            self._set_replica_limit(replica, 1.0)

    def _end_trial(self, replica: Replica) -> None:
        replica.on_trial = False
        self._set_replica_limit(replica, self.limit)

    def _set_replica_limit(self, replica: Replica, limit: float) -> None:
        replica.limit = replica.foreign + limit
        self.reopen(replica)

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

    def set_outside(self, replica: Replica, count: int, now: float, age: float = 0.0) -> None:
        """Other balancers had this many requests there, `age` seconds ago."""
        replica.outside_at = now - age
        self._set_outside(replica, count + replica.foreign, now)

    def _set_outside(self, replica: Replica, count: int, now: float) -> None:
        self._advance(replica, now)
        replica.load += count - replica.outside
        replica.outside = count
        self.reopen(replica)

    def set_foreign(self, replica: Replica, now: float) -> None:
        """Conclude anew how many requests are there that no balancer sent.

        They count as load, but leave the limit to ours: what a replica says of itself must never shut it.
        """
        readings = replica.readings
        count = readings.believed(now) if readings is not None else 0
        if count > AT_LEAST:  # only then is it worth a look at all
            count = min(count, trusted(max((r.load - r.foreign for r in self.members), default=0)))
        change = count - replica.foreign
        if change:
            replica.foreign = count
            replica.limit += change
            self._set_outside(replica, replica.outside + change, now)

    def _turn(self, replica: Replica, before: State | None, now: float) -> None:
        """Its state changed: who is in rotation now? Without a look at all the others, unless a panic begins or ends:
        thousands may come and go one by one."""
        states, panicked = self._states, self.panicking
        if before is not None:
            states[before] -= 1
        states[replica.state] += 1
        self.expected = expected = sum(states[state] for state in SHOULD_SERVE)
        self.panicking = bool(states[State.EJECTED]) and states[State.READY] < self.options.ejection.panic * expected
        if self.panicking is not panicked:
            self._rotate(now)
            return
        was = before is State.READY or (before is State.EJECTED and panicked)
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
        self.coming = 0.0  # what was said of one that comes was said of this one
        self.start_failure = ""
        self.reopen(replica)
        self._measure(replica)

    def _leave(self, replica: Replica, now: float) -> None:
        del self.members[bisect_left(self.members, replica.order, key=_by_order)]
        self.policy.left(replica, now)
        self.reopen(replica)
        if not self.members:
            self.lost_at = now
        if len(self.members) <= FEW:
            self.suspicion.relax()
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
        self.open = [r for r in members if r.load < r.limit and not r.held]
        self._open_orders = [r.order for r in self.open]
        self._measure()

    def reopen(self, replica: Replica) -> None:
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
        return replica.load < replica.limit and not replica.held and self.in_rotation(replica)

    def in_rotation(self, replica: Replica) -> bool:
        state = replica.state
        return state is State.READY or (state is State.EJECTED and self.panicking)

    # ------------------------------------------------------------------ load, counted at dispatch

    def launch(self, request: Request, replica: Replica, now: float) -> Flight:
        estimator = self.estimator
        cold = self._warm_up(request, replica) if request.cold_seconds else 0.0
        alone = request.base * replica.slowness + cold
        n = replica.load + 1
        if n == 1:
            predicted = alone
        else:
            predicted = alone + estimator.in_the_way(replica, now)
            self._advance(replica, now)
            if now - replica.answered_at > LEAST_SILENCE:
                self._look_for_silence(replica, now)
        replica.clock = now
        flight = Flight(request, replica, now, alone, predicted, n, replica.attained, cold)
        replica.load = n
        replica.in_flight += 1
        replica.work += alone
        replica.picks += 1
        replica.flights[flight] = None
        if replica.probation is not None:
            self.suspicion.sent(replica, flight)
        if n >= replica.limit:
            self.reopen(replica)
        self.active += 1
        if self.claims is not None:
            self.claims.hold(flight, now)
        return flight

    def _look_for_silence(self, replica: Replica, now: float) -> None:
        """Is the oldest request there overdue, and nothing came since it was sent?"""
        for oldest in replica.flights:
            silent = now - max(oldest.started, replica.answered_at)
            if silent > LEAST_SILENCE and silent > self.overdue * oldest.predicted:
                self.suspicion.suspect(replica, oldest.started, now)
            break

    def tell_sent(self, flight: Flight, now: float) -> None:
        if self._tells_sent:
            self.policy.sent(flight, now)

    def land(self, flight: Flight, now: float, *, over: bool = True) -> None:
        """Give back what `launch` took. Not `over`: nobody waits for it any more, but its replica may not know."""
        replica = flight.replica
        del replica.flights[flight]  # a second landing would fail here, before anything changed
        if flight.entry is not None:
            flight.entry[2] = None  # the plan of hedges must not keep what is over
            flight.entry = None
        if flight.hold is not None and self.claims is not None:
            self.claims.give_back(flight, now, over=over)
        replica.in_flight -= 1
        replica.work = replica.work - flight.alone if replica.in_flight else 0.0
        replica.last_finish = now
        self._advance(replica, now)
        replica.load -= 1
        if replica.load == replica.limit - 1:
            self.reopen(replica)
        if replica.probation is not None:
            self.suspicion.landed(replica, flight)
        self.active -= 1
        self.finished += 1

    def _advance(self, replica: Replica, now: float) -> None:
        """Bring the clock of attained work up to date, before the load changes."""
        progress = self.estimator.curve.progress
        n = replica.load
        replica.attained += (now - replica.clock) * (progress[n] if n < len(progress) else progress[-1])
        replica.clock = now

    def redate(self, flight: Flight, seconds: float, now: float) -> None:
        """The attempt really took `seconds`, whatever passed here: date it back, and its part of the clock with it."""
        replica = flight.replica
        self._advance(replica, now)
        passed = now - flight.started
        attained = replica.attained - flight.attained
        flight.attained = replica.attained - (attained * seconds / passed if passed > 0.0 else seconds)
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

    def learn(self, flight: Flight, outcome: Outcome, now: float, status: int = 0) -> EjectionReason | None:
        """Take in how an attempt ended (`status`: what a failed one was answered with). A reason: eject its replica."""
        seconds = now - flight.started
        if outcome is Outcome.LATE and seconds > PENALTY * flight.predicted:
            outcome = Outcome.TIMEOUT  # not only a short deadline: this replica hangs
        replica = flight.replica
        if outcome.taught:
            self.done += flight.request.base
            self.busy += seconds
            self.believed += flight.predicted
            self.missed += abs(seconds - flight.predicted)
            self.estimator.observe(flight, seconds, now)
            replica.latency.add(seconds, now)
        # A client's deadline is no failure; but far past the estimate it is a lower bound that counts: it must not look
        # like nothing, or a replica that hangs would look idle.
        bound = not outcome.answered and outcome is Outcome.IMPATIENT and seconds > PENALTY * flight.predicted
        if outcome.failed or bound:
            # An instant error must not look like a fast answer, to no policy. Of its speed it tells nothing: a fleet
            # that failed for a while is as fast as before when it is back.
            seconds = max(seconds, PENALTY * flight.predicted)
            replica.latency.add(seconds, now)
        if self._tells_finished and (outcome.taught or outcome.failed or bound):
            self.policy.finished(flight, seconds, outcome, now)
        if replica.on_trial and (outcome.taught or outcome is Outcome.CLIENT_ERROR):
            self._end_trial(replica)
        eject = self.ejection.count(replica, outcome, failure_words(outcome, status) if outcome.failed else "")
        if outcome.failed:
            replica.failed += 1
        if outcome.failed or bound:
            most = MOST_STRIKES if outcome.failed else max(MOST_FOR_BOUNDS, replica.strikes)
            replica.strikes = min(most, replica.strikes + 1)
            self._ramp(replica, now)
        elif replica.strikes and outcome.taught:
            self._clear_strikes(replica, now)
        if outcome.answered:
            replica.answered_at = now
            replica.unanswered = 0
        elif replica.answered_at > flight.started and (bound or outcome is Outcome.TIMEOUT):
            pass  # it answered others meanwhile: this one was merely long
        elif outcome.failed or bound:
            self.suspicion.note_unanswered(flight, now)
        if replica.probation is not None and eject is None:
            return self.suspicion.judge(flight, outcome, now)
        return eject

    def _clear_strikes(self, replica: Replica, now: float) -> None:
        """It answered. Where all had failed, all may be well again: the first to answer is not to get everything."""
        shared = all(r.strikes for r in self.members)
        for each in self.members if shared else (replica,):
            each.strikes = 0
            self._ramp(each, now)

    # ------------------------------------------------------------------ about once a second

    def tick(self, now: float) -> None:
        self.tick_at = now + self.options.interval
        self.estimator.tick(self.members, [r for r in self.replicas.values() if not self.in_rotation(r)])
        known = self.estimator.seen >= ENOUGH
        self.overdue = max(1.0, self.estimator.remaining.quantile(NEARLY_ALL)) if known else INFINITY
        for replica in self.members:
            if replica.outside > replica.foreign and now - replica.outside_at > FRESH * self.options.interval:
                self.set_outside(replica, 0, now)  # who reported it may be gone
            if replica.foreign and replica.readings is not None and now >= replica.readings.expires:
                self.set_foreign(replica, now)
            if now - replica.ready_since > self.options.ejection.longest and replica.ejections:
                replica.ejections -= 1  # a long time without trouble earns a shorter sentence
                replica.ready_since = now - self.options.slow_start
            if replica.drag != 1.0:
                replica.strikes = max(0, replica.strikes - 1)  # so that it is tried again
                self._ramp(replica, now)
        if self.options.concurrency == "auto":
            self._set_limit("auto")
        self._measure()
        self.trials.plan(self.members, self.finished, now)
        self.policy.tick(self.members, now)

    def _ramp(self, replica: Replica, now: float) -> None:
        """The weight in force: in slow start it grows from a tenth to all of it over the window."""
        window = self.options.slow_start
        part = min(1.0, max(RAMP_FLOOR, (now - replica.ready_since) / window)) if window else 1.0
        # Each failure in a row halves it: one that fails at once is always idle, and would draw everyone's requests.
        part *= 0.5**replica.strikes
        replica.share = replica.weight * part
        replica.drag = 1.0 / part

    def _set_limit(self, concurrency: int | str) -> None:
        busiest = max((r.load for r in self.members), default=0)
        if concurrency == "auto":
            limit = float(next_limit(self.estimator.curve, self.limit, busiest))
        else:
            limit = INFINITY if concurrency == "unlimited" else float(concurrency)
        if limit != self.limit:
            self.limit = limit
            self.estimator.curve.doubt()
        self._ticks += 1
        # Some replicas take more than the others while requests wait, or fewer while none do: without different n
        # there is nothing to learn from.
        odd = limit
        if concurrency == "auto":
            odd = float(step_up(int(limit)) if len(self.line) else step_down(int(limit), busiest))
        for replica in self.replicas.values():
            own = odd if (replica.order + self._ticks) % TRIED_BY == 0 else limit
            if not replica.on_trial and replica.foreign + own != replica.limit:
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
        each = at_once / self.estimator.curve.at(at_once) if self.limit < INFINITY else 1.0
        self.drain_rate = self._rate * each / self.estimator.remaining.mean

    def retry_after(self, now: float) -> float:
        """Seconds after which another try has a chance: what waits has started by then; at the least, one is over.

        While none is ready and one is coming: when that one should be.
        """
        return self.ready_in(now) or max(self.time_to_drain(), self.estimator.typical * self.fastest)

    def ready_in(self, now: float) -> float:
        """Seconds until a replica that is being loaded or started should be ready; 0.0: one is, or nobody knows."""
        return 0.0 if self.members or self.coming <= now else self.coming - now

    def holds(self, now: float) -> bool:
        """May a request wait although no replica is ready? Also without `hold`, while one may only be restarting."""
        if self.options.hold:
            return True
        restarting = now < self.lost_at + self.options.restart_grace
        return restarting and any(self._states[state] for state in MAY_RETURN)

    def give_up_at(self, since: float) -> float:
        """When a request without a deadline that waits since then has waited long enough."""
        options = self.options
        usual = since + options.max_wait
        if self.members:
            return usual
        if not options.hold:
            return min(usual, self.lost_at + options.restart_grace)
        if self.coming <= 0.0:
            return usual
        return max(usual, min(self.coming + OVERDUE, since + options.start_wait))

    def time_to_drain(self) -> float:
        """Seconds until what waits now has started."""
        return self.line.work / self.drain_rate if self.drain_rate else self.options.max_wait


def _by_order(replica: Replica) -> int:
    return replica.order
