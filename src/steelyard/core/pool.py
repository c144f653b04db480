"""The pool of one model: membership (membership.py), load and capacity (load.py), and here the policy, the queue,
budgets, the lifecycle of replicas, and learning from outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .attempts.hedging import HedgeBudget
from .attempts.retry import RetryBudget
from .errors import OptionError
from .estimator.exploration import Exploration
from .load import PoolLoad
from .options import PoolOptions
from .outcome import Outcome
from .outliers.detector import OutlierDetector
from .outliers.ejection_reason import EjectionReason, EjectionRule, describe_failure
from .outliers.ejector import Ejector
from .policies.base import Policy
from .queue import RequestQueue
from .replica import Event, Replica, State, next_state
from .request import INFINITY, Attempt, Request
from .review import Review

FAILURE_LATENCY_FACTOR = 3.0  # × predicted: how slow a failure counts
MAX_FAILURE_PENALTY = 5
MAX_TIMEOUT_PENALTY = 2  # after timeouts that clients chose
MAX_MEMBERS_RESCANNED = 64  # when one leaves; of more, capacity is approximate until the next tick
LATE_START_GRACE_SECONDS = 5.0  # how long requests wait for a replica that should be ready by now
# Bound once: a lookup through the enumeration costs more than the comparison, compiled or not.
READY: Final = State.READY
EJECTED: Final = State.EJECTED
CLIENT_ERROR: Final = Outcome.CLIENT_ERROR
CLIENT_DEADLINE_EXCEEDED: Final = Outcome.CLIENT_DEADLINE_EXCEEDED
DEADLINE_EXCEEDED: Final = Outcome.DEADLINE_EXCEEDED
TIMEOUT: Final = Outcome.TIMEOUT


class Pool(PoolLoad):
    def __init__(self, model: str, policy: Policy, options: PoolOptions, now: float = 0.0) -> None:
        super().__init__(model, options)
        self.exploration = Exploration()
        self.queue = RequestQueue(options.max_queue)
        self.outliers = OutlierDetector(options.outlier_detection)
        self.ejector = Ejector(self)
        self.retry_budget = RetryBudget(options.retry)
        self.hedge_budget = HedgeBudget(options.hedge)
        self.arrived = 0  # requests
        self.offered_work = 0.0  # their predicted seconds on a typical replica
        self.completed_work = 0.0  # the same, of answered attempts
        self.busy_seconds = 0.0  # their actual seconds: completed / busy is the speed at which each advances
        self.predicted_seconds = 0.0  # their seconds as predicted at dispatch
        self.prediction_error_seconds = 0.0  # sum of |actual − predicted|
        self.retried = 0  # attempts after one that failed
        self.hedged = 0  # second attempts beside one that runs …
        self.hedges_won = 0  # … and those of them that answered
        self.ejected = 0  # replicas taken out
        self.preempted: list[Request] = []  # lost their place in the queue; the next `expire` rejects them
        self.refused_idle = 0  # requests refused for their deadline in a row with nothing running
        self.recheck_at = INFINITY  # when to decide again on waiting for a better place
        self.next_ready_at = 0.0  # when a replica that is being loaded or started should be ready
        self.next_ready_is_guess = False
        self.start_failure = ""  # why the last start failed, while the next has not begun
        self.removed = False  # taken out of service; what runs still ends here
        self._orders = 0
        self.review = Review(self)
        self.tick_at = now + options.evaluation_interval
        self._made = now
        self.use_policy(policy, now)
        self.set_limit(options.concurrency, len(self.queue) > 0)

    def use_policy(self, policy: Policy, now: float) -> None:
        self.policy = policy
        self.load_index = None
        for replica in self.replicas.values():
            replica.notes = None
            for attempt in replica.running_attempts:
                attempt.notes = None
        policy.attach(self)
        for replica in self.members:
            policy.joined(replica, now)
        # A hook that a policy does not have is not called.
        kind = type(policy)
        self._tells_sent = kind.sent is not Policy.sent
        self._tells_finished = kind.finished is not Policy.finished
        self._tells_released = kind.released is not Policy.released
        self.wants_first_byte = kind.first_byte is not Policy.first_byte
        self.predicts_first_byte = kind.predict_first_byte is not Policy.predict_first_byte
        self.patient = kind.patience is not Policy.patience

    def notify_dispatched(self, attempt: Attempt, now: float) -> None:
        if self._tells_sent:
            self.policy.sent(attempt, now)

    def release(self, attempt: Attempt, now: float, *, over: bool = True) -> None:
        super().release(attempt, now, over=over)
        if self._tells_released:
            self.policy.released(attempt, now)

    def _member_joined(self, replica: Replica, now: float) -> None:
        self.policy.joined(replica, now)
        self.next_ready_at = 0.0  # the expected replica is this one
        self.start_failure = ""
        self.update_capacity(replica)

    def _member_left(self, replica: Replica, now: float) -> None:
        self.policy.left(replica, now)
        if len(self.members) <= MAX_MEMBERS_RESCANNED:
            self.probation.relax()
            self.update_capacity()
        else:
            self._subtract_capacity(replica)

    def _rotation_rebuilt(self, left: Sequence[Replica], joined: Sequence[Replica], now: float) -> None:
        for replica in left:
            self.policy.left(replica, now)
        for replica in joined:
            self.policy.joined(replica, now)
        self.update_capacity()

    def reconfigure(self, options: PoolOptions) -> None:
        self.options = options
        self.queue.limit = options.max_queue
        self.outliers.options = options.outlier_detection
        self.retry_budget.options = options.retry
        self.hedge_budget.options = options.hedge
        for replica in self.replicas.values():
            if not options.warm_keys:
                replica.warm = None
            elif replica.warm is None:
                replica.warm = {}
        self.set_limit(options.concurrency, len(self.queue) > 0)

    def add(self, replica: Replica, now: float) -> None:
        if replica.state is State.GONE:
            raise OptionError(f"replica {replica.id!r}: cannot be added as {replica.state.value}")
        if replica.id in self.replicas:
            raise OptionError(f"replica {replica.id!r} is already in the pool{self._of_model()}")
        self._orders += 1
        replica.order = self._orders
        replica.limit = self.limit
        replica.ready_since = now - self.options.slow_start  # a replica added as ready needs no slow start
        if self.options.warm_keys:
            replica.warm = {}
        self.replicas[replica.id] = replica
        self.estimator.admit(replica, now)
        if self.load_index is not None:
            self.load_index.add(replica)
        self._update_rotation(replica, None, now)

    def remove(self, id: str, now: float) -> Replica:
        replica = self.find(id)
        before = replica.state
        replica.state = next_state(before, Event.REMOVE)
        self.probation.end(replica)
        del self.replicas[id]
        if self.load_index is not None:
            self.load_index.remove(replica)
        self._update_rotation(replica, before, now)
        self.policy.removed(replica, now)
        replica.notes = None  # another policy may be in charge when its last attempts end
        return replica

    def apply_event(self, replica: Replica, event: Event, now: float, *, in_use: bool = False) -> None:
        """`in_use`: it needs no slow start."""
        old = replica.state
        replica.state = new = next_state(old, event)
        if replica.unverified:
            self.mark_verified(replica)
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
                slowed = replica.ejection is not None and replica.ejection.rule is EjectionRule.SLOWED
                replica.slowness_filter.restore(slowed)
                replica.slowness = replica.slowness_filter.value()
            else:
                self.estimator.admit(replica, now)  # it restarted: nothing known of its speed holds
                if replica.warm is not None:
                    replica.warm.clear()
                self.policy.restarted(replica, now)
            self.update_effective_weight(replica, now)
        self._update_rotation(replica, old, now)

    def admit_unverified(self, replica: Replica, now: float) -> None:
        self.apply_event(replica, Event.LOADED, now)
        if replica.state is READY:
            replica.unverified = True
            self._set_replica_limit(replica, 1.0)

    def _was_ready(self, before: State, now: float) -> bool:
        """Was it ready before our own start? Then it needs no slow start; nor does the only member."""
        return not self.members or (before is State.STARTING and now - self._made <= self.options.slow_start)

    def set_weight(self, replica: Replica, weight: float, now: float) -> None:
        replica.weight = weight
        self.estimator.reweigh(replica)
        self.update_effective_weight(replica, now)
        self.policy.reweighted(replica, now)

    def record_outcome(self, attempt: Attempt, outcome: Outcome, now: float, status: int = 0) -> EjectionReason | None:
        """`status`: of a failed answer. A reason: eject its replica."""
        seconds = now - attempt.started
        outcome = effective_outcome(attempt, outcome, now)
        replica = attempt.replica
        # Read once: a member of an enumeration is slow to look into, compiled or not.
        failed, informative, answered = outcome.failed, outcome.informative, outcome.answered
        if informative:
            self.completed_work += attempt.request.base
            self.busy_seconds += seconds
            self.predicted_seconds += attempt.predicted
            self.prediction_error_seconds += abs(seconds - attempt.predicted)
            self.estimator.observe(attempt, seconds, now)
            replica.latency.add(seconds, now)
        # A client's own deadline is no failure. Far past the estimate it is a lower bound of the duration and counts.
        bound = (
            not answered
            and outcome is CLIENT_DEADLINE_EXCEEDED
            and seconds > FAILURE_LATENCY_FACTOR * attempt.predicted
        )
        if failed or bound:
            # To policies an instant error must not look like a fast answer. The estimator does not learn from it.
            seconds = max(seconds, FAILURE_LATENCY_FACTOR * attempt.predicted)
            replica.latency.add(seconds, now)
        if self._tells_finished and (informative or failed or bound):
            self.policy.finished(attempt, seconds, outcome, now)
        if replica.unverified and (informative or outcome is CLIENT_ERROR):
            self.mark_verified(replica)
        eject = self.outliers.record(replica, outcome, describe_failure(outcome, status) if failed else "")
        if failed:
            replica.failed += 1
        if failed or bound:
            most = MAX_FAILURE_PENALTY if failed else max(MAX_TIMEOUT_PENALTY, replica.failure_penalty)
            replica.failure_penalty = min(most, replica.failure_penalty + 1)
            self.update_effective_weight(replica, now)
        elif replica.failure_penalty and informative:
            self._clear_failure_penalty(replica, now)
        if answered:
            self.probation.answered(replica, now)
        elif replica.answered_at > attempt.started and (bound or outcome is TIMEOUT):
            pass  # it answered others meanwhile: this one was merely long
        elif failed or bound:
            self.probation.note_unanswered(attempt, now)
        if replica.probation is not None and eject is None:
            return self.probation.on_outcome(replica.probation, attempt, outcome, now)
        return eject

    def _clear_failure_penalty(self, replica: Replica, now: float) -> None:
        """If all had failed, all are cleared: the first to answer must not get everything."""
        shared = all(r.failure_penalty for r in self.members)
        for each in self.members if shared else (replica,):
            each.failure_penalty = 0
            self.update_effective_weight(each, now)

    def tick(self, now: float) -> None:
        """A look at the pool as a whole, at once."""
        self.tick_at = now + self.options.evaluation_interval
        self.review.at_once(now, None)

    def retry_after(self, now: float) -> float:
        """Seconds until an expected replica is ready, or the queue has drained, at least a typical request."""
        return self.ready_in(now) or max(self.time_to_drain(), self.estimator.typical_seconds * self.fastest)

    def ready_in(self, now: float) -> float:
        """Seconds until the expected replica should be ready; 0.0: one is, or unknown."""
        return 0.0 if self.members or self.next_ready_at <= now else self.next_ready_at - now

    def may_wait_for_ready(self, now: float) -> bool:
        """Always with `wait_for_ready`; else while a replica may restart."""
        if self.options.wait_for_ready:
            return True
        restarting = now < self.lost_at + self.options.restart_grace
        return restarting and self.may_recover()

    def queue_deadline(self, since: float) -> float:
        """Until when a request queued at `since` waits, if it has no deadline."""
        options = self.options
        usual = since + options.queue_timeout
        if self.members:
            return usual
        if not options.wait_for_ready:
            return min(usual, self.lost_at + options.restart_grace)
        if self.next_ready_at <= 0.0:
            return usual
        return max(usual, min(self.next_ready_at + LATE_START_GRACE_SECONDS, since + options.start_wait))

    def time_to_drain(self) -> float:
        """Seconds until all that is queued now has started."""
        return self.queue.work / self.service_rate if self.service_rate else self.options.queue_timeout


def effective_outcome(attempt: Attempt, outcome: Outcome, now: float) -> Outcome:
    """A deadline exceeded far past the estimate is not only a short deadline: the replica hangs."""
    if outcome is DEADLINE_EXCEEDED and now - attempt.started > FAILURE_LATENCY_FACTOR * attempt.predicted:
        return TIMEOUT
    return outcome
