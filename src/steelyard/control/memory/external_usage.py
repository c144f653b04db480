"""Device memory used by processes we do not manage."""

from __future__ import annotations

from collections import deque

EXTERNAL_USAGE_SAMPLES = 3


class ExternalUsage:
    """All that is in use less what is ours, which is only known within bounds while requests run.

    It rises or falls when several samples in a row leave no other choice: the start of a request is not taken for
    external usage, nor is external usage taken for gone because much is reserved for a request.
    """

    def __init__(self) -> None:
        self.amount = 0
        self._least: deque[int] = deque(maxlen=EXTERNAL_USAGE_SAMPLES)
        self._most: deque[int] = deque(maxlen=EXTERNAL_USAGE_SAMPLES)

    def sample(self, used: int, surely: int, possibly: int) -> None:
        """Of what is `used`, `surely` and `possibly` are the bounds of what is ours."""
        self._least.append(used - possibly)
        self._most.append(used - surely)
        if len(self._least) == EXTERNAL_USAGE_SAMPLES:
            self.amount = max(0, min(max(self.amount, min(self._least)), max(self._most)))

    def reclaim(self, amount: int) -> None:
        """So much that was counted here is known to be ours."""
        self.amount = max(0, self.amount - amount)


OVERCOUNT_SAMPLES = 8  # a crashed server is detected sooner


class OvercountDetector:
    """Detects that more is counted for our models than is in use: several samples in a row, with nothing running."""

    def __init__(self) -> None:
        self._looks: deque[int] = deque(maxlen=OVERCOUNT_SAMPLES)

    def sample(self, used: int, surely: int, idle: bool) -> int:
        """So much of what is `surely` ours is not there; 0: not proven."""
        if not idle or used >= surely:
            self._looks.clear()
            return 0
        self._looks.append(surely - used)
        if len(self._looks) < OVERCOUNT_SAMPLES:
            return 0
        found = min(self._looks)
        self._looks.clear()
        return found
