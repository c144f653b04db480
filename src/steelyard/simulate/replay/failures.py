"""What went wrong in a recording, and why.

A replica that failed one request after another fails everything in that time. Any other failure belongs to its request,
which fails again wherever it goes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from ...core.outcome import Outcome
from .recording import RecordedRequest, Recording

FAILURE_BY_LABEL = {one.label: one for one in Outcome if one.failed or one is Outcome.CLIENT_ERROR}
NO_WORK_OUTCOMES = (Outcome.UNREACHABLE, Outcome.OVERLOADED)  # the replica did nothing for it
CONNECTION_OUTCOMES = (Outcome.UNREACHABLE, Outcome.CONNECTION_LOST, Outcome.TRUNCATED, Outcome.TIMEOUT)
MIN_CONSECUTIVE_FAILURES = 2
MAX_EXPECTED_BY_CHANCE = 0.05  # such runs in the whole recording; fewer: it is the replica
DETECTION_SECONDS = 10.0  # in which a gateway notices that a replica is gone
SERVING_STATES = ("ready", "ejected", "draining")


@dataclass(frozen=True)
class EndedAttempt:
    request: int
    nth: int  # attempt of its request
    start: float
    end: float
    outcome: Outcome | None  # None: it answered, or was cancelled

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome.failed


@dataclass(frozen=True)
class AttemptFailure:
    outcome: Outcome
    seconds: float
    work: float = 0.0  # on a replica of speed 1; 0: it took no turn there


@dataclass(frozen=True)
class FailureWindow:
    """A replica fails everything from `begin` to `end`."""

    begin: float
    end: float
    failure: AttemptFailure


@dataclass(frozen=True)
class RequestFailures:
    """Attempt by attempt; `always`: any further one fails as the last."""

    failures: tuple[AttemptFailure | None, ...]
    always: bool

    def of(self, nth: int) -> AttemptFailure | None:
        if nth < len(self.failures):
            return self.failures[nth]
        return self.failures[-1] if self.always else None


def ended_attempts(recording: Recording, replicas: list[str]) -> dict[str, list[EndedAttempt]]:
    """By replica, in order of their start."""
    ended: dict[str, list[EndedAttempt]] = {id: [] for id in replicas}
    for number, one in enumerate(recording.requests):
        for nth, attempt in enumerate(one.attempts):
            start = one.at - recording.begin + attempt.after
            lasted = one.seconds - attempt.after if attempt.seconds is None else attempt.seconds
            outcome = FAILURE_BY_LABEL.get(attempt.outcome) if attempt.seconds is not None else None
            ended[attempt.replica].append(EndedAttempt(number, nth, start, start + max(lasted, 0.0), outcome))
    for mine in ended.values():
        mine.sort(key=lambda one: (one.start, one.end))
    return ended


def find_failure_windows(
    ended: dict[str, list[EndedAttempt]],
) -> tuple[dict[str, list[FailureWindow]], set[tuple[int, int]]]:
    """The windows by replica; and the attempts in them, by request and place."""
    rows = {id: _failure_runs(mine) for id, mine in ended.items()}
    count = sum(len(mine) for mine in rows.values())
    fine = sum(not one.failed for mine in ended.values() for one in mine)
    chance = count / max(count + fine, 1)  # that after one that went well the next fails
    found: dict[str, list[FailureWindow]] = {id: [] for id in ended}
    excused: set[tuple[int, int]] = set()
    for id, mine in rows.items():
        for row, until in mine:
            requests = len({one.request for one in row})
            if requests >= MIN_CONSECUTIVE_FAILURES and count * chance ** (requests - 1) < MAX_EXPECTED_BY_CHANCE:
                found[id].append(_window(row, until))
                excused |= {(one.request, one.nth) for one in row}
    return found, excused


def _failure_runs(attempts: list[EndedAttempt]) -> list[tuple[list[EndedAttempt], float]]:
    """Consecutive failures, and when the next success began."""
    found: list[tuple[list[EndedAttempt], float]] = []
    for failed, row in groupby(attempts, key=lambda one: one.failed):
        mine = list(row)
        if failed:
            found.append((mine, float("inf")))
        elif found and found[-1][1] == float("inf"):
            found[-1] = found[-1][0], mine[0].start
    return found


def _window(row: list[EndedAttempt], until: float) -> FailureWindow:
    outcomes = Counter(one.outcome for one in row if one.outcome is not None)
    seconds = float(median(one.end - one.start for one in row))
    end = max(min(max(one.end for one in row), until), row[-1].start)
    return FailureWindow(row[0].start, end, AttemptFailure(outcomes.most_common(1)[0][0], seconds))


def killed_with_replica(recording: Recording, ended: dict[str, list[EndedAttempt]]) -> set[tuple[int, int]]:
    """Attempts that ended just before the gateway noticed that the replica was gone."""
    gone: dict[str, list[float]] = {}
    serving: set[str] = set()
    for line in recording.fleet:
        now = {member.id for member in line.replicas if member.state in SERVING_STATES}
        for id in serving - now:
            gone.setdefault(id, []).append(line.at - recording.begin)
        serving = now
    return {
        (one.request, one.nth)
        for id, mine in ended.items()
        for one in mine
        if one.outcome in CONNECTION_OUTCOMES
        and any(-1.0 <= when - one.end <= DETECTION_SECONDS for when in gone.get(id, ()))
    }


def failures_of_request(
    one: RecordedRequest, number: int, excused: set[tuple[int, int]], works: dict[tuple[int, int], float]
) -> RequestFailures | None:
    """None: nothing would go wrong again."""
    failures: list[AttemptFailure | None] = []
    for nth, attempt in enumerate(one.attempts):
        outcome = FAILURE_BY_LABEL.get(attempt.outcome)
        if outcome is None or attempt.seconds is None or (number, nth) in excused:
            failures.append(None)
        else:
            failures.append(AttemptFailure(outcome, max(attempt.seconds, 0.0), works.get((number, nth), 0.0)))
    if not any(failures):
        return None
    always = one.verdict not in ("abandoned", "refused") and not one.answered and failures[-1] is not None
    return RequestFailures(tuple(failures), always)
