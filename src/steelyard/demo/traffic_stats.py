"""What the demo's clients measured: answers, latencies, replicas. Pure: time is an argument."""

from __future__ import annotations

from collections import Counter, deque
from math import ceil, nan
from typing import NamedTuple

from ..core.statistics.histogram import Histogram

RECENT_SECONDS = 10.0  # seconds that count as now


class Recent(NamedTuple):
    """The last seconds."""

    rate: float  # answers a second
    p50: float
    p99: float


class TrafficStats:
    def __init__(self, began: float) -> None:
        self.began = began
        self.latency = Histogram()  # seconds from when a request was due to its last byte
        self.answered: Counter[str] = Counter()  # by replica
        self.failed: Counter[str] = Counter()  # by what went wrong
        self._recent: deque[tuple[float, float]] = deque()

    @property
    def requests(self) -> int:
        """That are over."""
        return self.latency.count + self.failures

    @property
    def failures(self) -> int:
        return self.failed.total()

    def record_answer(self, replica: str, seconds: float, now: float) -> None:
        self.answered[replica] += 1
        self.latency.add(seconds)
        self._recent.append((now, seconds))

    def record_failure(self, what: str) -> None:
        self.failed[what] += 1

    def merged_with(self, other: TrafficStats) -> TrafficStats:
        """Of both together, from when the first began; nothing is recent in it."""
        both = TrafficStats(min(self.began, other.began))
        for tally in (self, other):
            both.latency.merge(tally.latency)
            both.answered.update(tally.answered)
            both.failed.update(tally.failed)
        return both

    def share(self, replica: str) -> float:
        """Of the answers."""
        return self.answered[replica] / self.latency.count if self.latency.count else 0.0

    def recent(self, now: float) -> Recent:
        while self._recent and self._recent[0][0] < now - RECENT_SECONDS:
            self._recent.popleft()
        ordered = sorted(seconds for _, seconds in self._recent)
        span = min(RECENT_SECONDS, max(now - self.began, 1e-9))
        return Recent(len(ordered) / span, _quantile(ordered, 0.5), _quantile(ordered, 0.99))


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[ceil(q * len(ordered)) - 1] if ordered else nan
