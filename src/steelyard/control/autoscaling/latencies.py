"""Recent latencies, from workers' cumulative histograms."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from ...core.statistics.histogram import bucket_midpoint

WINDOW_SECONDS = 30.0
SLICE_SECONDS = 3.0  # latencies leave the window in slices of this length


class RecentLatencies:
    """Counts by bucket of core.statistics.histogram; only those that were hit."""

    def __init__(self) -> None:
        self._totals: Counter[int] = Counter()
        self.recent: Counter[int] = Counter()  # the sum of the slices
        self.slices: deque[tuple[float, Counter[int]]] = deque()  # with when each began

    def rebase(self, histograms: Iterable[Mapping[int, int]]) -> None:
        """After a worker ended, differences to the totals before mean nothing."""
        self._totals = _sum(histograms)

    def update(self, histograms: Iterable[Mapping[int, int]], now: float) -> Counter[int]:
        before, self._totals = self._totals, _sum(histograms)
        came = self._totals - before
        if came:
            if not self.slices or now - self.slices[-1][0] >= SLICE_SECONDS:
                self.slices.append((now, Counter()))
            self.slices[-1][1].update(came)
            self.recent.update(came)
        return came

    def p99(self, now: float) -> float:
        """Seconds; 0.0: there were none."""
        while self.slices and now - self.slices[0][0] >= WINDOW_SECONDS:
            self.recent -= self.slices.popleft()[1]
        left = 0.01 * self.recent.total()  # this many may take longer
        for index in sorted(self.recent, reverse=True):
            left -= self.recent[index]
            if left < 0:
                return bucket_midpoint(index)
        return 0.0


def _sum(histograms: Iterable[Mapping[int, int]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return total
