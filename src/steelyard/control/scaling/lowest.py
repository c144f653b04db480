"""The lowest that a number was of late."""

from __future__ import annotations

from collections import deque


class WindowedMinimum:
    """A drop counts at once, a rise only when it has lasted."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._kept: deque[tuple[float, int]] = deque()  # ever larger numbers, each with when it was last seen

    def add(self, number: int, now: float) -> int:
        kept = self._kept
        while kept and kept[-1][1] >= number:
            kept.pop()
        kept.append((now, number))
        while kept[0][0] <= now - self._window:
            kept.popleft()
        return kept[0][1]
