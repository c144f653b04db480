"""Load and capacity of a pool: what runs on each replica, and what the members can do per second.

Load is counted at dispatch and given back when the attempt ends, so it is exact for this balancer; `other_load` is
added as reported. Each replica has a clock of attained service, at the speed of one of n concurrent requests
(estimator/batching_curve.py): the work an attempt has received is a difference of two readings.

Capacity: service_rate = Σ 1 / slowness × (limit / slowdown(limit)) / mean of actual / predicted, in seconds of typical
work per second; worked out at each tick, and approximately when members come and go.
"""

from __future__ import annotations

from .attempts.hedging import cancel_hedge
from .candidates import MANY_CANDIDATES
from .estimator.concurrency_limit import PROBING_REPLICAS_ONE_IN, next_limit, probe_above, probe_below
from .estimator.estimator import Estimator
from .membership import Membership
from .memory.filter import NO_FILTER, CandidateFilter
from .options import PoolOptions
from .outliers.probation import MIN_OVERDUE_SECONDS, ProbationTracker
from .replica import MIN_EXTERNAL_LOAD_CAP, Replica, external_load_cap
from .request import INFINITY, Attempt, Request

MIN_SLOW_START_SHARE = 0.1
PEAK_DECAY_PER_REVIEW = 0.9


class PoolLoad(Membership):
    def __init__(self, model: str, options: PoolOptions) -> None:
        super().__init__(model, options)
        self.estimator = Estimator()
        self.probation = ProbationTracker(self)
        self.memory: CandidateFilter = NO_FILTER
        self.active = 0  # attempts running
        self.finished = 0  # attempts that ended
        self.limit: float = INFINITY  # requests a replica takes at once
        self.overdue = INFINITY  # × predicted, after which hardly any answer comes
        self.service_rate = 0.0
        self.fastest = 1.0  # least slowness among the members
        self._rate = 0.0  # Σ 1 / slowness
        self.busiest = 0  # the most requests of balancers on a replica, at the last review
        self._ticks = 0
        self._peak = 0.0  # of the requests on the busiest replica, lately

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
                self.probation.begin_if_overdue(replica, MIN_OVERDUE_SECONDS, 1.0, now)
        replica.attained_at = now
        attempt = Attempt(request, replica, now, alone, predicted, n, replica.attained_service, cold)
        replica.load = n
        replica.in_flight += 1
        replica.outstanding_work += alone
        replica.dispatched += 1
        replica.running_attempts[attempt] = None
        if replica.oldest is None:
            replica.oldest = attempt
            replica.oldest_since = now if now > replica.last_finish else replica.last_finish
        if replica.probation is not None:
            self.probation.on_dispatch(replica.probation, attempt)
        if n >= replica.limit:
            self.update_open(replica)
        elif self.load_index is not None:
            self.load_index.update(replica)
        self.active += 1
        if request.memory is not None:
            self.memory.attach(attempt, now)
        return attempt

    def release(self, attempt: Attempt, now: float, *, over: bool = True) -> None:
        """Not `over`: its answer is no longer wanted, but its replica may not know."""
        replica = attempt.replica
        del replica.running_attempts[attempt]  # a second release fails here, before anything changed
        if attempt.hedge_entry is not None:
            cancel_hedge(attempt)
        if attempt.reservation is not None:
            self.memory.release(attempt, now, over=over)
        replica.in_flight -= 1
        replica.outstanding_work = replica.outstanding_work - attempt.seconds_alone if replica.in_flight else 0.0
        replica.last_finish = now
        if replica.oldest is attempt:
            replica.oldest = next(iter(replica.running_attempts), None)
        if replica.oldest is not None:
            started = replica.oldest.started
            replica.oldest_since = started if started > now else now
        self._advance(replica, now)
        replica.load -= 1
        if replica.load == replica.limit - 1:
            self.update_open(replica)
        elif self.load_index is not None:
            self.load_index.update(replica)
        if replica.probation is not None:
            self.probation.on_release(replica.probation, attempt)
        self.active -= 1
        self.finished += 1

    def backdate(self, attempt: Attempt, seconds: float, now: float) -> None:
        """The attempt really took `seconds`."""
        replica = attempt.replica
        self._advance(replica, now)
        passed = now - attempt.started
        attained = replica.attained_service - attempt.attained_at_dispatch
        work = attained * seconds / passed if passed > 0.0 else seconds
        attempt.attained_at_dispatch = replica.attained_service - work
        attempt.started = now - seconds
        if replica.oldest is attempt:
            started = attempt.started
            replica.oldest_since = started if started > replica.last_finish else replica.last_finish

    def _advance(self, replica: Replica, now: float) -> None:
        progress = self.estimator.curve.progress
        n = replica.load
        replica.attained_service += (now - replica.attained_at) * (progress[n] if n < len(progress) else progress[-1])
        replica.attained_at = now

    def _warm_up(self, request: Request, replica: Replica) -> float:
        """Seconds to add if the request's key is not warm there; from now on it is."""
        warm = replica.warm
        if warm is None or request.key is None:
            return 0.0
        cold = request.key not in warm
        warm.pop(request.key, None)
        warm[request.key] = None
        if len(warm) > self.options.warm_keys:
            del warm[next(iter(warm))]
        return request.cold_seconds if cold else 0.0

    def set_peer_load(self, replica: Replica, count: int, now: float, age: float = 0.0) -> None:
        replica.peer_load_at = now - age
        self._set_other_load(replica, count + replica.external_load, now)

    def update_external_load(self, replica: Replica, now: float) -> None:
        """Requests that no balancer sent. They raise load and limit alike: a report must not close a replica."""
        readings = replica.external_readings
        count = readings.estimate(now) if readings is not None else 0
        if count > MIN_EXTERNAL_LOAD_CAP:
            count = min(count, external_load_cap(self._busiest()))
        change = count - replica.external_load
        if change:
            replica.external_load = count
            replica.limit += change
            self._set_other_load(replica, replica.other_load + change, now)

    def _busiest(self) -> int:
        """The most requests of balancers on a replica; of many, as the last review found."""
        if len(self.members) > MANY_CANDIDATES:
            return self.busiest
        return max((r.load - r.external_load for r in self.members), default=0)

    def _set_other_load(self, replica: Replica, count: int, now: float) -> None:
        self._advance(replica, now)
        replica.load += count - replica.other_load
        replica.other_load = count
        self.update_open(replica)

    def set_limit(self, concurrency: int | str, has_queue: bool) -> None:
        odd = self.decide_limit(concurrency, has_queue, max((r.load for r in self.members), default=0))
        for replica in self.replicas.values():
            self.apply_limit(replica, odd)

    def decide_limit(self, concurrency: int | str, has_queue: bool, busiest: int) -> float:
        """Sets `limit`; returns that of the replicas that try another one."""
        self._peak = peak = max(float(busiest), PEAK_DECAY_PER_REVIEW * self._peak)
        if concurrency == "auto":
            limit = float(next_limit(self.estimator.curve, self.limit, int(peak)))
        else:
            limit = INFINITY if concurrency == "unlimited" else float(concurrency)
        if limit != self.limit:
            if min(limit, self.limit) < peak:
                self.estimator.curve.discount_evidence()
            self.limit = limit
        self._ticks += 1
        # Some replicas take more while requests wait, fewer while none do: the curve is learned from differing n.
        if concurrency == "auto":
            return float(
                probe_above(int(limit)) if has_queue else probe_below(self.estimator.curve, int(limit), busiest)
            )
        return limit

    def apply_limit(self, replica: Replica, odd: float) -> None:
        own = odd if (replica.order + self._ticks) % PROBING_REPLICAS_ONE_IN == 0 else self.limit
        if not replica.unverified and replica.external_load + own != replica.limit:
            self._set_replica_limit(replica, own)

    def mark_verified(self, replica: Replica) -> None:
        replica.unverified = False
        self._set_replica_limit(replica, self.limit)

    def _set_replica_limit(self, replica: Replica, limit: float) -> None:
        replica.limit = replica.external_load + limit
        self.update_open(replica)

    def update_effective_weight(self, replica: Replica, now: float) -> None:
        """In slow start it grows from a tenth of the weight over the window."""
        window = self.options.slow_start
        part = min(1.0, max(MIN_SLOW_START_SHARE, (now - replica.ready_since) / window)) if window else 1.0
        # Halved by each failure in a row: a replica that fails at once is idle, and would draw all requests.
        part *= 0.5**replica.failure_penalty
        replica.effective_weight = replica.weight * part
        replica.slow_start_factor = 1.0 / part
        if self.load_index is not None:
            self.load_index.update(replica)

    def update_capacity(self, newcomer: Replica | None = None) -> None:
        """Work out `service_rate` and `fastest`; with a newcomer, from what it adds."""
        if newcomer is None:
            self._rate = 0.0
            self.fastest = INFINITY
        rate, fastest = self._rate, self.fastest if self._rate else INFINITY
        for replica in self.members if newcomer is None else (newcomer,):
            rate += 1.0 / replica.slowness
            if replica.slowness < fastest:
                fastest = replica.slowness
        self.set_capacity(rate, fastest)

    def set_capacity(self, rate: float, fastest: float) -> None:
        self._rate = rate
        self.fastest = fastest if rate else 1.0
        self._set_service_rate()

    def _subtract_capacity(self, replica: Replica) -> None:
        """It left. Approximate until the next tick: `fastest` stays."""
        self._rate = max(0.0, self._rate - 1.0 / replica.slowness)
        self._set_service_rate()

    def _set_service_rate(self) -> None:
        at_once = min(self.limit, 1024.0)
        each = at_once / self.estimator.curve.slowdown(at_once) if self.limit < INFINITY else 1.0
        self.service_rate = self._rate * each / self.estimator.remaining.mean
