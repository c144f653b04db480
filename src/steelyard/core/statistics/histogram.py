"""A histogram of durations in log buckets: memory does not grow with the number of requests."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from typing import Final

BUCKET_GROWTH: Final = 1.004  # a quantile read back is at most 0.2 % off
MIN_BUCKET_SECONDS: Final = 1e-6
BUCKET_COUNT: Final = 7200  # reaches about 35 days
RANK_TOLERANCE: Final = 1e-9  # 0.07 * 100 is a little more than 7
BUCKETS_PER_LN: Final = 1.0 / log(BUCKET_GROWTH)
BUCKET_OFFSET: Final = 1.0 - log(MIN_BUCKET_SECONDS) * BUCKETS_PER_LN


class Histogram:
    __slots__ = ("count", "counts", "maximum", "total")

    def __init__(self) -> None:
        self.counts = [0] * BUCKET_COUNT
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0

    def add(self, seconds: float) -> None:
        index = int(log(seconds) * BUCKETS_PER_LN + BUCKET_OFFSET) if seconds > MIN_BUCKET_SECONDS else 0
        self.counts[index if index < BUCKET_COUNT else BUCKET_COUNT - 1] += 1
        self.count += 1
        self.total += seconds
        if seconds > self.maximum:
            self.maximum = seconds

    def merge(self, other: Histogram) -> None:
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.count += other.count
        self.total += other.total
        self.maximum = max(self.maximum, other.maximum)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else float("nan")

    def quantile(self, q: float) -> float:
        if not self.count:
            return float("nan")
        wanted = q * self.count
        seen = 0
        for index, count in enumerate(self.counts):
            seen += count
            if seen >= wanted and count:
                return min(bucket_midpoint(index), self.maximum)
        return self.maximum

    def cdf(self, points: int = 400) -> tuple[list[float], list[float]]:
        """Seconds, and the share of requests at or below, at about `points` points."""
        xs: list[float] = []
        ys: list[float] = []
        seen = 0
        used = sum(1 for c in self.counts if c)
        keep = max(1, used // points)
        for step, index in enumerate(i for i, c in enumerate(self.counts) if c):
            seen += self.counts[index]
            if step % keep == 0 or seen == self.count:
                xs.append(bucket_midpoint(index))
                ys.append(seen / self.count)
        return xs, ys


def bucket_midpoint(index: int) -> float:
    return MIN_BUCKET_SECONDS * exp((index - 0.5) / BUCKETS_PER_LN) if index else MIN_BUCKET_SECONDS


def quantile_bucket(counts: Mapping[int, int], q: float) -> int | None:
    """The bucket of the q-quantile; None: there are no counts."""
    wanted, seen = q * sum(counts.values()) - RANK_TOLERANCE, 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen and seen >= wanted:
            return bucket
    return None


# Durations counted under fixed bounds: what metrics show. A quantile is only as fine as these.

DURATION_BOUNDS_SECONDS: Final[tuple[float, ...]] = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75,
    1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip

FIRST_BOUND_SECONDS: Final = DURATION_BOUNDS_SECONDS[0]  # most waits are shorter


class DurationCounts:
    """`counts[i]`: how many were above bound i - 1 of DURATION_BOUNDS_SECONDS and not above i; the last: above all."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(DURATION_BOUNDS_SECONDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bound_index(seconds) if seconds > FIRST_BOUND_SECONDS else 0] += 1
        self.total += seconds


def bound_index(seconds: float) -> int:
    """The first bound that is not below: bisect_left, but compiled."""
    low, high = 0, len(DURATION_BOUNDS_SECONDS)
    while low < high:
        middle = (low + high) >> 1
        if DURATION_BOUNDS_SECONDS[middle] < seconds:
            low = middle + 1
        else:
            high = middle
    return low
