"""What went wrong with a model's replicas of late, and when the next may be started."""

from __future__ import annotations

from typing import NamedTuple

FIRST, LONGEST = 1.0, 60.0  # seconds
LOOPING = 3  # failures in a row
FORGOTTEN = 600.0  # seconds after the last, if nothing is being tried


class Trouble(NamedTuple):
    """A start that failed, or a replica that ended by itself."""

    replica: str
    reason: str
    why: str  # in words
    last_words: tuple[str, ...]  # the end of its log


class Setbacks:
    """Starts that fail are tried again after 1, 2, 4 … 60 seconds. What was started together fails together: that is
    one setback, not ten."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """One has proved itself, the settings are others, or it was long ago."""
        self.row = 0  # failed starts
        self.until = 0.0  # none is started before
        self.at = self.since = 0.0  # the last, and the first in the row
        self.trouble: Trouble | None = None  # the last

    @property
    def looping(self) -> bool:
        return self.row >= LOOPING

    def failed(self, trouble: Trouble, began: float, now: float) -> None:
        """One that began then was not started, or ended before it had proved itself."""
        if self.row == 0 or began > self.at:
            self.row += 1
            self.since = self.since if self.row > 1 else now
            self.until = now + min(LONGEST, FIRST * 2.0 ** min(self.row - 1, 20))
            self.at = now
        self.trouble = trouble

    def ended(self, trouble: Trouble, now: float) -> None:
        """One that had proved itself: the next may be started at once, unless others fail meanwhile."""
        if self.row == 0:
            self.at = self.since = now
            self.trouble = trouble

    def left_well(self, began: float) -> None:
        """One that began then was ready, and was stopped because nobody needed it: the row ends, if it is of the time
        before."""
        if self.row and began > self.at:
            self.clear()

    def fade(self, now: float) -> None:
        """Nothing is on trial now. What failed yesterday says nothing about today."""
        if self.trouble is not None and now - self.at >= FORGOTTEN:
            self.clear()

    def again_in(self, now: float) -> float:
        return max(0.0, self.until - now) if self.row else 0.0

    def starts(self, missing: int, coming: int, ready_since: int, now: float) -> int:
        """How many of the missing may be started now, with so many being started. After a failure one is tried, and
        when it is ready (so many are, since then) twice as many: a broken command must not start ten processes."""
        if not self.row:
            return missing
        if now < self.until:
            return 0
        return max(0, min(missing, 1 + ready_since - coming))
