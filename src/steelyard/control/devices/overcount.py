"""What is counted for our models, and is not in use."""

from __future__ import annotations

from collections import deque

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
