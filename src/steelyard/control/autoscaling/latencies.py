"""Recent latencies, from workers' cumulative histograms."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from math import exp, log

from ...core.statistics.histogram import BUCKET_COUNT, BUCKET_OFFSET, BUCKETS_PER_LN, MIN_BUCKET_SECONDS

WINDOW_SECONDS = 30.0  # seconds that count as of late …
SLICE_SECONDS = 3.0  # … and leave it so many at a time


def bucket_of(seconds: float) -> int:
    """Where an answer after so many seconds is counted; what took longer, up to 0.4 %, may be counted there too."""
    index = int(log(seconds) * BUCKETS_PER_LN + BUCKET_OFFSET) if seconds > MIN_BUCKET_SECONDS else 0
    return min(index, BUCKET_COUNT - 1)


class RecentLatencies:
    """Buckets of core.histogram → answers; only those that were hit."""

    def __init__(self) -> None:
        self._totals: Mapping[int, int] = {}
        self.recent: dict[int, int] = {}  # the sum of the slices
        self.slices: deque[tuple[float, dict[int, int]]] = deque()  # since when, what came

    def rebase(self, histograms: Iterable[Mapping[int, int]]) -> None:
        """These totals are others' than before: what came in between is not known."""
        self._totals = _sum(histograms)

    def update(self, histograms: Iterable[Mapping[int, int]], now: float) -> dict[int, int]:
        """What came since the last time."""
        before, totals = self._totals, _sum(histograms)
        came = {index: more for index, count in totals.items() if (more := count - before.get(index, 0)) > 0}
        self._totals = totals
        if came:
            if not self.slices or now - self.slices[-1][0] >= SLICE_SECONDS:
                self.slices.append((now, {}))
            _add(self.slices[-1][1], came)
            _add(self.recent, came)
        return came

    def p99(self, now: float) -> float:
        """Seconds, of the answers of late; 0.0: there were none."""
        self._expire(now)
        left = 0.01 * sum(self.recent.values())  # this many may take longer
        for index in sorted(self.recent, reverse=True):
            left -= self.recent[index]
            if left < 0:
                return MIN_BUCKET_SECONDS * exp((index - 0.5) / BUCKETS_PER_LN) if index else MIN_BUCKET_SECONDS
        return 0.0

    def _expire(self, now: float) -> None:
        recent = self.recent
        while self.slices and now - self.slices[0][0] >= WINDOW_SECONDS:
            for index, count in self.slices.popleft()[1].items():
                recent[index] -= count
                if not recent[index]:
                    del recent[index]


def _sum(histograms: Iterable[Mapping[int, int]]) -> Mapping[int, int]:
    histograms = list(histograms)
    if len(histograms) == 1:
        return histograms[0]
    total: dict[int, int] = {}
    for histogram in histograms:
        _add(total, histogram)
    return total


def _add(total: dict[int, int], more: Mapping[int, int]) -> None:
    for index, count in more.items():
        total[index] = total.get(index, 0) + count
