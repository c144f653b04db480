"""How much of what a worker says is passed on: all, unless it says very much."""

from __future__ import annotations

BURST_LINES = 200  # lines
LINES_PER_SECOND = 20.0  # lines, in the long run


class LogRateLimit:
    """A leaky bucket of lines: who logs for each request must not fill the disk, nor keep the supervisor busy."""

    def __init__(self, now: float) -> None:
        self._left = float(BURST_LINES)
        self._at = now
        self._dropped = 0

    def admit(self, now: float) -> bool:
        self._left = min(float(BURST_LINES), self._left + (now - self._at) * LINES_PER_SECOND)
        self._at = now
        if self._left < 1.0:
            self._dropped += 1
            return False
        self._left -= 1.0
        return True

    def take_dropped(self) -> int:
        """Lines that were not passed on since this was last asked."""
        count, self._dropped = self._dropped, 0
        return count
