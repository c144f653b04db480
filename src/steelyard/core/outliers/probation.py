"""Suspicion and probation: the half-open state of a circuit breaker, before an ejection as well as after one.

Idea: a replica is suspected when UNANSWERED_BEFORE_PROBATION requests in a row brought no answer (timed out, broken
off, or overdue) while others answer. It then gets one request at a time, the *trial*: an answer clears it, a failed or
silent trial ejects it. A replica that returns from an ejection begins the same way.

Formula: a trial is silent after max(MIN_TRIAL_SECONDS, TRIAL_OVERDUE_FACTOR × the 0.999 quantile of actual / predicted
× its prediction); after one without an answer the pause doubles up to MAX_TRIAL_BACKOFF_SECONDS.

Source: docs/decisions/0023-suspicion-and-recovery.md. Limits: enough healthy replicas (the panic threshold) stay in
full use; clients that gave up at their own deadline lead to trials, never to an ejection.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ..candidates import is_candidate
from ..estimator.estimator import Estimator
from ..outcome import Outcome
from ..replica import Replica, State
from ..request import Attempt, Request
from .detector import consecutive_reason
from .ejection_reason import EjectionReason, EjectionRule

if TYPE_CHECKING:
    from ..load import PoolLoad
    from ..review import Review

UNANSWERED_BEFORE_PROBATION = 2
MIN_OVERDUE_SECONDS = 0.1
MIN_TRIAL_SECONDS = 1.0
TRIAL_OVERDUE_FACTOR = 3.0
MIN_TRIAL_BACKOFF_SECONDS, MAX_TRIAL_BACKOFF_SECONDS = 1.0, 30.0
MIN_SPARE_SECONDS = 5.0  # a request with less time is not used for a trial,
MAX_REQUESTS_SKIPPED = 20  # unless all are like that
PROBATION_TIMEOUT_SECONDS = 10.0  # after which a restored replica is cleared without a request
STALL_QUANTILE = 0.999
MIN_STALL_SECONDS = 1.0
MAX_ATTEMPTS_SCANNED = 64  # the oldest
CHUNK = 256  # replicas of a large pool looked at in one step of a review


class Probation:
    """Of a replica that has to show that it answers."""

    __slots__ = ("backoff", "next_trial", "restored", "since", "trial")

    def __init__(self, now: float, *, restored: bool) -> None:
        self.since = now
        self.restored = restored  # it was ejected; else it is suspected
        self.backoff = MIN_TRIAL_BACKOFF_SECONDS
        self.next_trial = now
        self.trial: Attempt | None = None

    def back_off(self, now: float) -> None:
        self.next_trial = now + self.backoff
        self.backoff = min(2.0 * self.backoff, MAX_TRIAL_BACKOFF_SECONDS)


class ProbationTracker:
    """The replicas of one pool that are on probation. `replica.suspended`: it gets nothing just now."""

    def __init__(self, pool: PoolLoad) -> None:
        self._pool = pool
        self.due: list[Replica] = []  # to be tried with the next request to spare, the last one first
        self._active: dict[Replica, None] = {}  # all on probation; they are ready
        self._kept_back = 0  # requests that could not be spared
        self._last_answered: Replica | None = None

    def answered(self, replica: Replica, now: float) -> None:
        """An attempt there brought an answer, even an error."""
        replica.answered_at = now
        replica.unanswered = 0
        self._last_answered = replica

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica | None:
        """The replica to try with this request, if it can be retried and has time for that."""
        replica = self.due[-1]
        if not is_candidate(candidates, replica):
            return None
        precious = not request.idempotent or request.deadline < now + MIN_SPARE_SECONDS
        if precious and self._kept_back < MAX_REQUESTS_SKIPPED:
            self._kept_back += 1
            return None
        self._kept_back = 0
        return replica

    def note_unanswered(self, attempt: Attempt, now: float) -> None:
        replica = attempt.replica
        if not replica.unanswered:
            replica.unanswered_since = attempt.started
        replica.unanswered += 1
        if replica.unanswered >= UNANSWERED_BEFORE_PROBATION:
            self.begin(replica, replica.unanswered_since, now)
            if replica.probation is not None and replica.probation.since == now:
                replica.probation.back_off(now)

    def begin(self, replica: Replica, since: float, now: float) -> None:
        """It is silent since then. If others answer, it gets one request at a time until it answers."""
        enabled = self._pool.options.outlier_detection.enabled
        if replica.probation is not None or replica.state is not State.READY or not enabled:
            return
        if self._others_answer(replica, since):
            replica.probation = Probation(now, restored=False)
            self._active[replica] = None
            self._hold(replica)

    def on_dispatch(self, probation: Probation, attempt: Attempt) -> None:
        if not self._is_spared(attempt.replica):
            self._clear(attempt.replica)
        elif probation.trial is None:
            probation.trial = attempt
            self._hold(attempt.replica)

    def on_release(self, probation: Probation, attempt: Attempt) -> None:
        if probation.trial is attempt:
            probation.trial = None
            self._release(attempt.replica)

    def on_outcome(self, probation: Probation, attempt: Attempt, outcome: Outcome, now: float) -> EjectionReason | None:
        """A reason: eject it."""
        replica = attempt.replica
        if outcome.answered and not outcome.failed:
            self._clear(replica)
            return None
        if attempt.started < probation.since:
            return None
        if not self._is_spared(replica):
            self._clear(replica)
        elif outcome.failed and (probation.restored or not outcome.answered):
            return consecutive_reason(replica, EjectionRule.PROBATION_FAILED)
        elif outcome.answered:
            self._clear(replica)  # an error: it is not silent
        elif replica.unanswered:
            probation.back_off(now)
            self._hold(replica)
        return None

    def review(self, review: Review) -> Generator[None, None, list[tuple[Replica, EjectionReason]]]:
        """Releases those whose pause is over; returns those whose trial has been silent for too long."""
        found: list[tuple[Replica, EjectionReason]] = []
        for chunk in review.members(CHUNK):
            for replica in chunk:
                if replica.probation is not None:
                    self._review_probation(replica, replica.probation, review.now, found)
                elif replica.running_attempts:
                    # One request alone may be overdue where the policy sends no second one.
                    self.begin_if_overdue(replica, MIN_TRIAL_SECONDS, TRIAL_OVERDUE_FACTOR, review.now)
            yield
        self.relax()
        return found

    def _review_probation(
        self, replica: Replica, probation: Probation, now: float, found: list[tuple[Replica, EjectionReason]]
    ) -> None:
        reason = self._silence(replica, probation, now)
        if reason is not None:
            found.append((replica, reason))
        elif probation.trial is None and replica.suspended and now >= probation.next_trial:
            self._release(replica)
        elif probation.restored and not replica.unanswered and now - probation.since >= PROBATION_TIMEOUT_SECONDS:
            self._clear(replica)

    def relax(self) -> None:
        """Where too few others are left, those on probation are used like all."""
        if not self._active or self._is_enough(self._pool.ready_count() - len(self._active)):
            return
        for replica in sorted(self._active, key=_by_order):
            if replica.suspended and not self._is_spared(replica):
                self._clear(replica)

    def begin_if_overdue(self, replica: Replica, min_seconds: float, factor: float, now: float) -> None:
        oldest = replica.oldest
        if oldest is not None:
            silent = now - max(oldest.started, replica.answered_at)
            if self._is_overdue(oldest, silent, min_seconds, factor):
                self.begin(replica, oldest.started, now)

    def _is_overdue(self, attempt: Attempt, silent: float, min_seconds: float, factor: float) -> bool:
        return silent > min_seconds and silent > factor * self._pool.overdue * attempt.predicted

    def _silence(self, replica: Replica, probation: Probation, now: float) -> EjectionReason | None:
        trial = probation.trial
        if trial is None or replica.answered_at > trial.started:
            return None
        silent = now - trial.started
        if not self._is_overdue(trial, silent, MIN_TRIAL_SECONDS, TRIAL_OVERDUE_FACTOR):
            return None
        if not self._others_answer(replica, trial.started):
            return None
        return EjectionReason(EjectionRule.NO_RESPONSE, silent, trial.predicted)

    def _is_spared(self, replica: Replica) -> bool:
        """Are enough others in full use without it?"""
        well = self._pool.ready_count() - len(self._active)
        if replica.state is State.READY and replica.probation is None:
            well -= 1  # itself
        return self._is_enough(well)

    def _is_enough(self, well: int) -> bool:
        return well >= max(1.0, self._pool.options.outlier_detection.panic_threshold * self._pool.expected_count)

    def _others_answer(self, replica: Replica, since: float) -> bool:
        last = self._last_answered
        if last is None or last.answered_at <= since or not self._is_spared(replica):
            return False  # in a large fleet that stands still, each replica asks this
        if self._answers(last, replica, since) and self._pool.in_rotation(last):
            return True
        return any(self._answers(other, replica, since) for other in self._pool.members)

    @staticmethod
    def _answers(other: Replica, replica: Replica, since: float) -> bool:
        well = other.answered_at > since and not other.consecutive_failures
        return well and other is not replica and not other.suspended

    def _hold(self, replica: Replica) -> None:
        replica.suspended = True
        if replica in self.due:
            self.due.remove(replica)
        self._pool.update_open(replica)

    def _release(self, replica: Replica) -> None:
        replica.suspended = False
        if replica not in self.due:
            self.due.append(replica)
        self._pool.update_open(replica)

    def _clear(self, replica: Replica) -> None:
        self.end(replica)
        self._pool.update_open(replica)

    def end(self, replica: Replica) -> None:
        replica.probation = None
        self._active.pop(replica, None)
        replica.suspended = False
        replica.unanswered = 0
        if replica in self.due:
            self.due.remove(replica)

    def begin_restored(self, replica: Replica, now: float) -> None:
        replica.probation = Probation(now, restored=True)
        self._active[replica] = None
        self.due.append(replica)


def _by_order(replica: Replica) -> int:
    return replica.order


def stalls_after(replica: Replica, estimator: Estimator) -> float:
    """Seconds without a byte after which nearly all requests like those that run there are over: then it is frozen. A
    probe that times out cannot tell frozen from busy."""
    if not estimator.samples:
        return MIN_STALL_SECONDS  # nothing is known of how long they take, so the probe is believed
    looked_at = islice(replica.running_attempts, MAX_ATTEMPTS_SCANNED)
    longest = max((attempt.predicted for attempt in looked_at), default=0.0)
    return max(MIN_STALL_SECONDS, longest * estimator.remaining.quantile(STALL_QUANTILE))
