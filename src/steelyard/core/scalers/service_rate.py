"""Work that a full replica does per second, measured from answers.

Idea: arriving and completed work are counted with the same estimates, so their bias cancels out.

Formula: with a concurrency limit, slots × completed work / busy seconds. Without one, work done per replica-second ÷
utilization, which follows from how much requests slow each other down (M/M/c).

Source: Sakasegawa 1977 (waiting in M/M/c). Limits: needs MIN_REQUESTS answers; without a limit it is unknown while
requests lose less than MIN_SLOWDOWN_SHARE of their speed.
"""

from __future__ import annotations

from math import sqrt

from ..request import INFINITY
from ..statistics.sliding_windows import SlidingTotals
from .base import ScalingMetrics

MIN_REQUESTS = 20.0
DEFAULT_MAX_CONCURRENCY = 32.0  # of a replica without a limit, until it is measured
RECENT_WINDOW_SHARES = (0.2, 0.04)  # of the window, where there is no limit
MIN_SLOWDOWN_SHARE = 0.25  # of their speed that requests must lose


class ServiceRate:
    def __init__(self, seconds: float) -> None:
        self.seconds = 0.0  # per request
        self._window = seconds
        self._totals = SlidingTotals(seconds)
        self._ready = 0.0  # seconds that replicas were
        self._when: float | None = None
        self._last: tuple[float, ...] = ()  # done, busy, answered
        self._sums: tuple[float, ...] = (0.0, 0.0, 0.0)
        self._each = 0.0  # work per second of each request, as last known
        self._full = 0.0  # work of a replica without a limit, as last known
        self._from: int | None = None  # answered when counting began: earlier work has other estimates

    def add(self, seen: ScalingMetrics) -> None:
        counts = (seen.completed_work, seen.busy_seconds, seen.answered)
        growth = tuple(max(0.0, a - b) for a, b in zip(counts, self._last or counts, strict=True))
        self._last = counts
        self._ready += seen.ready * max(0.0, seen.now - self._when) if self._when is not None else 0.0
        self._when = seen.now
        if self._from is None:
            self._from = seen.answered + seen.running + seen.waiting
        if seen.answered < self._from:
            return
        self._sums = tuple(a + b for a, b in zip(self._sums, growth, strict=True))
        self._totals.add(seen.now, *self._sums, self._ready)
        _, (done, busy, answered, _) = self._totals.over(self._window)
        if answered >= MIN_REQUESTS and done > 0.0 and busy > 0.0:
            self._each = done / busy
            self.seconds = busy / answered

    def rate(self, seen: ScalingMetrics) -> float:
        if seen.slots_configured and 1.0 <= seen.slots < INFINITY:
            guess = seen.rate if 0.0 < seen.rate < INFINITY else 1.0
            return seen.slots * self._each if self._each else guess
        if self._each:
            self._look()
        return min(seen.slots * (self._each or 1.0), max(1.0, self._full or DEFAULT_MAX_CONCURRENCY))

    def _look(self) -> None:
        """Without a limit: work done ÷ utilization, between replicas that share a queue and replicas that do not; in
        between, what was known before holds."""
        least = most = 0.0
        for part in RECENT_WINDOW_SHARES:
            span, (done, busy, answered, ready) = self._totals.over(part * self._window)
            if span < 0.99 * part * self._window or answered < MIN_REQUESTS or done <= 0.0 or ready <= 0.0:
                continue
            least = max(least, done / ready)
            if done < (1.0 - MIN_SLOWDOWN_SHARE) * busy:
                least = max(least, done / ready / _utilization(busy / done - 1.0, max(1.0, ready / span)))
                most = max(most, done / ready / (1.0 - done / busy))
        if most:
            self._full = min(max(self._full or most, least), most)
        elif self._full:
            self._full = max(self._full, least)


def _utilization(wait: float, servers: float) -> float:
    """Utilization at which requests wait `wait` times as long as they take (Sakasegawa 1977)."""
    power = sqrt(2.0 * (servers + 1.0)) - 1.0
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2.0
        if middle**power < wait * servers * (1.0 - middle):
            low = middle
        else:
            high = middle
    return high
