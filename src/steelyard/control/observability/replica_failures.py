"""Which replicas fail too many attempts. Pure.

Retries hide failures from clients and probes do not see them: a replica may look healthy and fail most requests.
Totals of all workers come in about once a second. A copy is kept every 10 s; the oldest one begins the last minute.

An alarm begins when 5 % of the last minute's attempts, and at least three, fail for 10 s: a restart costs fewer. The
balancer avoids a failing replica, which leaves few attempts in a minute, so 20 % of the last ten minutes' attempts,
from the first failure on, are an alarm too. It ends when neither holds and less than 2 % failed for 30 s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ...core.outcome import Outcome
from ...core.replica import State
from ...units import format_duration
from ..fleet.registry import ReplicaKey
from .totals import ReplicaTotals
from .views import Alarm, RecentAttemptsView

WINDOW_SECONDS: Final = 60.0
SNAPSHOT_INTERVAL_SECONDS: Final = 10.0
LONG_WINDOW_SECONDS: Final = 600.0
LONG_WINDOW_ALARM_SHARE: Final = 0.2
MIN_FAILURES: Final = 3
ALARM_SHARE: Final = 0.05
CLEAR_SHARE: Final = 0.02
MIN_SHOWN_SHARE: Final = 0.01
RAISE_AFTER_SECONDS: Final = 10.0
CLEAR_AFTER_SECONDS: Final = 30.0
ALARM_EJECTIONS_IN_A_ROW: Final = 3


class AttemptCounts(NamedTuple):
    """Since the supervisor began."""

    ended: int
    failed: int


class FailureMark(NamedTuple):
    """Just before an attempt failed."""

    at: float
    totals: AttemptCounts


class Failing(NamedTuple):
    since: float
    seen: float  # when it last failed too much


NO_ATTEMPTS: Final = AttemptCounts(0, 0)


class ReplicaFailures:
    def __init__(self) -> None:
        self._totals: dict[ReplicaKey, AttemptCounts] = {}
        self._copies: deque[tuple[float, dict[ReplicaKey, AttemptCounts]]] = deque()  # the oldest first
        self._errors: dict[ReplicaKey, tuple[str, float]] = {}  # the last one, and when
        self._marks: dict[ReplicaKey, list[FailureMark]] = {}  # of the last ten minutes, the oldest first
        self._failing: dict[ReplicaKey, Failing] = {}
        self._ejections: dict[ReplicaKey, tuple[int, float]] = {}  # many in a row, since when
        self.ejected: set[ReplicaKey] = set()

    def update(self, replicas: Mapping[ReplicaKey, ReplicaTotals], now: float) -> None:
        before = self._totals
        self._totals = {key: _attempt_counts(status) for key, status in replicas.items()}
        if not self._copies or now - self._copies[-1][0] >= SNAPSHOT_INTERVAL_SECONDS:
            self._copies.append((now, self._totals if self._copies else {}))
            while len(self._copies) > 1 and now - self._copies[1][0] >= WINDOW_SECONDS:
                self._copies.popleft()
        for key, totals in self._totals.items():
            if totals.ended < before.get(key, NO_ATTEMPTS).ended:
                self._forget(key)  # it left and came back: another under its name
            elif totals.failed > (known := before.get(key, NO_ATTEMPTS)).failed:
                self._mark(key, FailureMark(now, known))
        self.ejected = {key for key, status in replicas.items() if status.state == State.EJECTED.value}
        self._note_errors(replicas, now)
        self._judge(now)
        self._ejections = {
            key: (status.consecutive_ejections, self._ejections.get(key, (0, now))[1])
            for key, status in replicas.items()
            if status.consecutive_ejections >= ALARM_EJECTIONS_IN_A_ROW
        }

    def _mark(self, key: ReplicaKey, mark: FailureMark) -> None:
        marks = self._marks.setdefault(key, [])
        if not marks or mark.at - marks[-1].at >= SNAPSHOT_INTERVAL_SECONDS:
            marks.append(mark)

    def _forget(self, key: ReplicaKey) -> None:
        self._errors.pop(key, None)
        self._marks.pop(key, None)
        self._failing.pop(key, None)
        for _, copy in self._copies:
            if copy is not self._totals:
                copy.pop(key, None)

    def _note_errors(self, replicas: Mapping[ReplicaKey, ReplicaTotals], now: float) -> None:
        for key in self._errors.keys() - replicas.keys():
            del self._errors[key]
        for key, status in replicas.items():
            if status.last_error:
                at = now - status.last_error_age
                if key not in self._errors or at > self._errors[key][1]:
                    self._errors[key] = (status.last_error, at)

    def _judge(self, now: float) -> None:
        """Only replicas that failed recently or have an alarm need a look."""
        self._marks = {
            key: kept
            for key, marks in self._marks.items()
            if key in self._totals and (kept := [mark for mark in marks if now - mark.at < LONG_WINDOW_SECONDS])
        }
        self._failing = {
            key: judged
            for key in (self._marks.keys() | self._failing.keys()) & self._totals.keys()
            if (judged := self._judged(key, self._failing.get(key), now)) is not None
        }

    def _judged(self, key: ReplicaKey, before: Failing | None, now: float) -> Failing | None:
        window = self._window(key)
        share = window.failed / window.ended if window.ended else 0.0
        marks = self._marks.get(key)
        lasting = marks and marks[-1].at - marks[0].at >= RAISE_AFTER_SECONDS
        fails = lasting and (_exceeds(window, ALARM_SHARE) or _exceeds(self._long(key), LONG_WINDOW_ALARM_SHARE))
        if before is None:
            return Failing(now, now) if fails else None
        # An ejected replica gets no requests: nothing shows that it is well again.
        if fails or share >= CLEAR_SHARE or key in self.ejected:
            return before._replace(seen=now)
        return before if now - before.seen < CLEAR_AFTER_SECONDS else None

    def _long(self, key: ReplicaKey) -> AttemptCounts:
        """Since the first attempt that failed in the last ten minutes."""
        marks, totals = self._marks[key], self._totals[key]
        return AttemptCounts(totals.ended - marks[0].totals.ended, totals.failed - marks[0].totals.failed)

    def _window(self, key: ReplicaKey) -> AttemptCounts:
        totals = self._totals.get(key, NO_ATTEMPTS)
        oldest = self._copies[0][1].get(key, NO_ATTEMPTS) if self._copies else NO_ATTEMPTS
        return AttemptCounts(totals.ended - oldest.ended, totals.failed - oldest.failed)

    # ------------------------------------------------------------------ what is shown

    def recent(self, key: ReplicaKey, now: float) -> RecentAttemptsView:
        window = self._window(key)
        error, at = self._errors.get(key, ("", now))
        return RecentAttemptsView(
            seconds=now - self._began(key, now),
            attempts=window.ended,
            failed=window.failed,
            failing=key in self._failing,
            last_error=error,
            last_error_age=now - at if error else None,
        )

    def _evidence(self, key: ReplicaKey, now: float) -> str:
        """Of the last minute, or of longer where that shows more."""
        window, seconds = self._window(key), now - self._began(key, now)
        if not _exceeds(window, ALARM_SHARE) and key in self._marks:
            window, seconds = self._long(key), now - self._marks[key][0].at
        said = f"{window.failed} of {window.ended} attempts failed in the last {format_duration(seconds)}"
        if key not in self._errors:
            return said
        error, at = self._errors[key]
        return f"{said}, the last with {error} {format_duration(now - at)} ago"

    def _began(self, key: ReplicaKey, now: float) -> float:
        """Start of the window: no earlier than the replica is known."""
        known = [at for at, copy in self._copies if key in copy]
        return known[0] if known else self._copies[-1][0] if self._copies else now

    def alarms(self, now: float) -> Iterable[Alarm]:
        for (model, id), failing in self._failing.items():
            what = f"{model}/{id}: {self._evidence((model, id), now)}"
            yield Alarm(code="replica_failing", message=what, age=now - failing.since, model=model, replica=id)
        for (model, id), (times, since) in self._ejections.items():
            last = self._errors.get((model, id))
            error = f"; the last error was {last[0]}" if last else ""
            what = f"{model}/{id}: ejected {times} times in a row: it does not recover{error}"
            yield Alarm(code="repeatedly_ejected", message=what, age=now - since, model=model, replica=id)


def _exceeds(window: AttemptCounts, share: float) -> bool:
    return window.failed >= MIN_FAILURES and window.failed >= share * window.ended


def is_failing(recent: RecentAttemptsView) -> bool:
    """More than one failure among hundreds."""
    return recent.failing or (recent.failed > 0 and recent.failed >= MIN_SHOWN_SHARE * recent.attempts)


def _attempt_counts(status: ReplicaTotals) -> AttemptCounts:
    """Without attempts that the client cancelled."""
    ended = sum(status.outcomes.values()) - status.outcomes.get(Outcome.CANCELLED.label, 0)
    return AttemptCounts(ended, status.failures)
