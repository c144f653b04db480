"""Suspicion and probation: the half-open state of a circuit breaker, before an ejection as well as after one.

A replica is suspected when two requests in a row brought no answer (they timed out, broke off, or are overdue there
still) while other replicas answer. It then gets one request at a time, the *trial*: an answer clears it, a trial that
fails or stays silent ejects it. A replica that comes back from an ejection begins the same way. A client that gave up
at a deadline of its own choice proves nothing: such requests lead to trials, never to an ejection.

Bounded like ejections: enough replicas that are well (the panic threshold) stay in full use.
See docs/decisions/0023-suspicion-and-recovery.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .ejection import in_a_row
from .ejection_reason import EjectionReason, Rule
from .outcome import Outcome
from .replica import Replica, State
from .request import Flight, Request

if TYPE_CHECKING:
    from .pool import Pool

SUSPICIOUS = 2  # requests in a row without an answer
LEAST_SILENCE = 0.1  # seconds: a shorter silence is nothing
LEAST_TRIAL = 1.0  # seconds that a trial may be silent, at least
PATIENCE = 3.0  # and so many times what is overdue
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before the next trial
SPARE_SECONDS = 5.0  # a request with less time is not used for a trial …
SPARE_REQUESTS = 20  # … unless all are like that
RETURN = 10.0  # seconds without trouble after which one that came back is cleared though it got no request


class Probation:
    """What is known of a replica that has to show that it answers."""

    __slots__ = ("next_trial", "pause", "restored", "since", "trial")

    def __init__(self, now: float, *, restored: bool) -> None:
        self.since = now
        self.restored = restored  # it was ejected; else it is suspected
        self.pause = FIRST_PAUSE
        self.next_trial = now
        self.trial: Flight | None = None

    def put_off(self, now: float) -> None:
        """The next trial, if this one fails too, comes later still."""
        self.next_trial = now + self.pause
        self.pause = min(2.0 * self.pause, LONGEST_PAUSE)


class Suspicion:
    """The replicas of one pool that are on probation. `replica.held`: it gets nothing just now."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.due: list[Replica] = []  # whoever is next to be tried, with the next request that can be spared
        self._kept_back = 0  # requests that could not be spared

    # ------------------------------------------------------------------ per attempt, and hardly ever

    def take(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica | None:
        """Whom to try with this request: rather one that can be sent again elsewhere and has the time for it."""
        replica = self.due[-1]
        if replica not in candidates:
            return None
        if (not request.idempotent or request.deadline < now + SPARE_SECONDS) and self._kept_back < SPARE_REQUESTS:
            self._kept_back += 1
            return None
        self._kept_back = 0
        return replica

    def note_unanswered(self, flight: Flight, now: float) -> None:
        """An attempt brought no answer though it should have."""
        replica = flight.replica
        if not replica.unanswered:
            replica.unanswered_since = flight.started
        replica.unanswered += 1
        if replica.unanswered >= SUSPICIOUS:
            self.suspect(replica, replica.unanswered_since, now)
            if replica.probation is not None and replica.probation.since == now:
                replica.probation.put_off(now)

    def suspect(self, replica: Replica, since: float, now: float) -> None:
        """Nothing came of it since then. If others answer, it gets one request at a time until it answers."""
        if replica.probation is not None or replica.state is not State.READY or not self._pool.options.ejection.enabled:
            return
        if self._others_answer(replica, since):
            replica.probation = Probation(now, restored=False)
            self._hold(replica)

    def sent(self, replica: Replica, flight: Flight) -> None:
        """A request went to one on probation."""
        probation = replica.probation
        if not self._is_spared(replica):
            self._clear(replica)
        elif probation is not None and probation.trial is None:
            probation.trial = flight
            self._hold(replica)

    def landed(self, replica: Replica, flight: Flight) -> None:
        probation = replica.probation
        if probation is not None and probation.trial is flight:
            probation.trial = None
            self._release(replica)

    def judge(self, flight: Flight, outcome: Outcome, now: float) -> EjectionReason | None:
        """An attempt on one that is on probation has ended. A reason: eject it."""
        replica = flight.replica
        probation = replica.probation
        if outcome.answered and not outcome.failed:
            self._clear(replica)
            return None
        if probation is None or flight.started < probation.since:
            return None
        if not self._is_spared(replica):
            self._clear(replica)
        elif outcome.failed and (probation.restored or not outcome.answered):
            return in_a_row(replica, Rule.TRIAL)
        elif outcome.answered:
            self._clear(replica)  # an error: it is not silent, and failures in a row are counted elsewhere
        elif replica.unanswered:
            probation.put_off(now)
            self._hold(replica)
        return None

    # ------------------------------------------------------------------ about once a second

    def look(self, now: float) -> list[tuple[Replica, EjectionReason]]:
        """Let those whose pause is over be tried; returns those whose trial has been silent for too long."""
        found = []
        for replica in self._pool.members:
            probation = replica.probation
            if probation is None:
                self._look_for_silence(replica, now)
                continue
            reason = self._silence(replica, probation, now)
            if reason is not None:
                found.append((replica, reason))
            elif probation.trial is None and replica.held and now >= probation.next_trial:
                self._release(replica)
            elif probation.restored and not replica.unanswered and now - probation.since >= RETURN:
                self._clear(replica)
        self.relax()
        return found

    def relax(self) -> None:
        """Others may have gone: where too few are left, those on probation are used like all."""
        for replica in self._pool.members:
            if replica.held and not self._is_spared(replica):
                self._clear(replica)

    def _look_for_silence(self, replica: Replica, now: float) -> None:
        """One request alone may be overdue where the policy sends no second one."""
        for oldest in replica.flights:
            if self._is_silent(now - max(oldest.started, replica.answered_at), oldest):
                self.suspect(replica, oldest.started, now)
            break

    def _is_silent(self, seconds: float, flight: Flight) -> bool:
        return seconds > LEAST_TRIAL and seconds > PATIENCE * self._pool.overdue * flight.predicted

    def _silence(self, replica: Replica, probation: Probation, now: float) -> EjectionReason | None:
        trial = probation.trial
        if trial is None or replica.answered_at > trial.started:
            return None
        silent = now - trial.started
        if not self._is_silent(silent, trial) or not self._others_answer(replica, trial.started):
            return None
        return EjectionReason(Rule.SILENT, silent, trial.predicted)

    # ------------------------------------------------------------------ inside

    def _is_spared(self, replica: Replica) -> bool:
        """Are enough others in full use without it?"""
        members = self._pool.members
        well = sum(1 for r in members if r is not replica and r.state is State.READY and r.probation is None)
        return well >= max(1.0, self._pool.options.ejection.panic * self._pool.expected)

    def _others_answer(self, replica: Replica, since: float) -> bool:
        others = [r for r in self._pool.members if r is not replica and not r.held]
        return any(r.answered_at > since and not r.consecutive_failures for r in others) and self._is_spared(replica)

    def _hold(self, replica: Replica) -> None:
        replica.held = True
        if replica in self.due:
            self.due.remove(replica)
        self._pool.reopen(replica)

    def _release(self, replica: Replica) -> None:
        """It may be tried."""
        replica.held = False
        if replica not in self.due:
            self.due.append(replica)
        self._pool.reopen(replica)

    def _clear(self, replica: Replica) -> None:
        self.forget(replica)
        self._pool.reopen(replica)

    def forget(self, replica: Replica) -> None:
        """It is cleared, or in another state: nothing is held against it."""
        replica.probation = None
        replica.held = False
        replica.unanswered = 0
        if replica in self.due:
            self.due.remove(replica)

    def came_back(self, replica: Replica, now: float) -> None:
        """It was ejected, and is ready again."""
        replica.probation = Probation(now, restored=True)
        self.due.append(replica)
