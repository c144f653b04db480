"""Device memory used by processes we do not manage."""

from __future__ import annotations

from collections import deque

EXTERNAL_USAGE_SAMPLES = 3


class ExternalUsage:
    """All that is in use less what is ours; but what is ours is only known within bounds while requests run.

    So it is believed to be more, or less, when several looks in a row leave no other choice: the start of a request is
    not taken for a stranger, and a stranger is not taken for gone because much was reserved for a request.
    """

    def __init__(self) -> None:
        self.amount = 0
        self._least: deque[int] = deque(maxlen=EXTERNAL_USAGE_SAMPLES)
        self._most: deque[int] = deque(maxlen=EXTERNAL_USAGE_SAMPLES)

    def sample(self, used: int, surely: int, possibly: int) -> None:
        """Of what is `used`, so much is `surely` ours, and so much `possibly`."""
        self._least.append(used - possibly)
        self._most.append(used - surely)
        if len(self._least) == EXTERNAL_USAGE_SAMPLES:
            self.amount = max(0, min(max(self.amount, min(self._least)), max(self._most)))

    def reclaim(self, amount: int) -> None:
        """So much of it was counted here, and is known to be ours now."""
        self.amount = max(0, self.amount - amount)


# What is counted for our models, and is not in use.

OVERCOUNT_SAMPLES = 8  # a server that has crashed is found out sooner


class OvercountDetector:
    """Several looks in a row, with nothing running, at less than is surely ours: then that is not what it seems."""

    def __init__(self) -> None:
        self._looks: deque[int] = deque(maxlen=OVERCOUNT_SAMPLES)

    def sample(self, used: int, surely: int, idle: bool) -> int:
        """So much of what is `surely` ours is not there; 0: nothing is proved."""
        if not idle or used >= surely:
            self._looks.clear()
            return 0
        self._looks.append(surely - used)
        if len(self._looks) < OVERCOUNT_SAMPLES:
            return 0
        found = min(self._looks)
        self._looks.clear()
        return found
