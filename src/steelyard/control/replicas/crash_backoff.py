"""What went wrong with a model's replicas of late, and when the next may be started."""

from __future__ import annotations

from typing import NamedTuple

from ..backoff import exponential_delay

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0  # seconds
CRASH_LOOP_FAILURES = 3  # failures in a row
FORGET_AFTER_SECONDS = 600.0  # seconds after the last, if nothing is being tried


class StartFailure(NamedTuple):
    """A start that failed, or a replica that ended by itself."""

    replica: str
    reason: str
    why: str  # in words
    log_tail: tuple[str, ...]  # the end of its log


class CrashBackoff:
    """Starts that fail are tried again after 1, 2, 4 … 60 seconds. What was started together fails together: that is
    one setback, not ten."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """One has proved itself, the settings are others, or it was long ago."""
        self.consecutive_failures = 0  # failed starts
        self.retry_at = 0.0  # none is started before
        self.at = self.since = 0.0  # the last, and the first in the row
        self.last_failure: StartFailure | None = None  # the last

    @property
    def looping(self) -> bool:
        return self.consecutive_failures >= CRASH_LOOP_FAILURES

    def failed(self, trouble: StartFailure, began: float, now: float) -> None:
        """One that began then was not started, or ended before it had proved itself."""
        if self.consecutive_failures == 0 or began > self.at:
            self.consecutive_failures += 1
            self.since = self.since if self.consecutive_failures > 1 else now
            self.retry_at = now + exponential_delay(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, self.consecutive_failures)
            self.at = now
        self.last_failure = trouble

    def ended(self, trouble: StartFailure, now: float) -> None:
        """One that had proved itself: the next may be started at once, unless others fail meanwhile."""
        if self.consecutive_failures == 0:
            self.at = self.since = now
            self.last_failure = trouble

    def left_well(self, began: float) -> None:
        """One that began then was ready, and was stopped because nobody needed it: the row ends, if it is of the time
        before."""
        if self.consecutive_failures and began > self.at:
            self.clear()

    def fade(self, now: float) -> None:
        """Nothing is on trial now. What failed yesterday says nothing about today."""
        if self.last_failure is not None and now - self.at >= FORGET_AFTER_SECONDS:
            self.clear()

    def retry_in(self, now: float) -> float:
        return max(0.0, self.retry_at - now) if self.consecutive_failures else 0.0

    def starts(self, missing: int, coming: int, ready_since: int, now: float) -> int:
        """How many of the missing may be started now, with so many being started. After a failure one is tried, and
        when it is ready (so many are, since then) twice as many: a broken command must not start ten processes."""
        if not self.consecutive_failures:
            return missing
        if now < self.retry_at:
            return 0
        return max(0, min(missing, 1 + ready_since - coming))


# A start that has to wait for room on a device. That is nobody's failure.


class MemoryShortage:
    def __init__(self) -> None:
        self.why = ""  # empty: there is none
        self.since = 0.0

    def begin(self, why: str, now: float) -> bool:
        """Is it new?"""
        new = not self.why
        self.since = now if new else self.since
        self.why = why
        return new

    def end(self) -> None:
        self.why = ""
