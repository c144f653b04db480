"""Decayed averages and windowed quantiles. Every read is a pure function of the state and the time given."""

from __future__ import annotations

from math import exp, log
from typing import Final

# Buckets grow by 2 % (a quantile read back is at most 1 % off), from 1 µs to about 11 days.
BUCKET_GROWTH: Final = 1.02
MIN_BUCKET_SECONDS: Final = 1e-6
BUCKET_COUNT: Final = 1400
MAX_BUCKET_SECONDS: Final = MIN_BUCKET_SECONDS * BUCKET_GROWTH ** (BUCKET_COUNT - 2)
_BUCKETS_PER_LN: Final = 1.0 / log(BUCKET_GROWTH)
_BUCKET_OFFSET: Final = -log(MIN_BUCKET_SECONDS) * _BUCKETS_PER_LN + 1.0


def bucket_of(seconds: float) -> int:
    """Too small or too large: the first or the last."""
    if seconds <= MIN_BUCKET_SECONDS:
        return 0
    return int(log(seconds) * _BUCKETS_PER_LN + _BUCKET_OFFSET) if seconds < MAX_BUCKET_SECONDS else BUCKET_COUNT - 1


def bucket_seconds(index: int) -> float:
    """The middle (in ratio) of a bucket."""
    return MIN_BUCKET_SECONDS * BUCKET_GROWTH ** (index - 0.5) if index else MIN_BUCKET_SECONDS


def quantile_of(counts: dict[int, int], q: float) -> float:
    """The q-quantile of bucket counts; 0.0 when there are none."""
    wanted = q * sum(counts.values())
    seen = 0
    for index in sorted(counts):
        seen += counts[index]
        if seen >= wanted:
            return bucket_seconds(index)
    return bucket_seconds(max(counts)) if counts else 0.0


class DecayedMean:
    """A value weighs e^(-age/tau). A ratio of decayed sums, so it starts at the first value, not at zero."""

    __slots__ = ("_stamp", "_sum", "_weight", "tau")

    def __init__(self, tau: float) -> None:
        self.tau = tau
        self._sum = 0.0
        self._weight = 0.0
        self._stamp = 0.0

    def add(self, value: float, now: float) -> None:
        if now > self._stamp:
            fade = exp((self._stamp - now) / self.tau)
            self._sum *= fade
            self._weight *= fade
            self._stamp = now
        self._sum += value
        self._weight += 1.0

    def value(self, default: float = 0.0) -> float:
        return self._sum / self._weight if self._weight > 1e-12 else default

    def rate(self, now: float) -> float:
        """Decayed sum per second: the rate at which `value` has been arriving."""
        return self._sum * exp(min(0.0, (self._stamp - now) / self.tau)) / self.tau


class WindowedQuantiles:
    """Over the last `window` seconds, in log buckets; of two half windows the older is dropped as a whole."""

    __slots__ = ("_half", "_new", "_old", "_since")

    def __init__(self, window: float = 30.0) -> None:
        self._half = window / 2
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._since = 0.0

    def add(self, seconds: float, now: float) -> None:
        if now - self._since >= self._half:
            self._turn(now)
        index = bucket_of(seconds)
        new = self._new
        new[index] = new.get(index, 0) + 1

    def _turn(self, now: float) -> None:
        halves = int((now - self._since) / self._half)
        self._old = self._new if halves == 1 else {}
        self._new = {}
        self._since += halves * self._half  # not `now`: the older half would reach back further than the window

    def _counts(self, now: float) -> dict[int, int]:
        age = now - self._since
        if age >= 2 * self._half:
            return {}
        merged = dict(self._new)
        if age < self._half:
            for index, count in self._old.items():
                merged[index] = merged.get(index, 0) + count
        return merged

    def count(self, now: float) -> int:
        return sum(self._counts(now).values())

    def quantile(self, q: float, now: float) -> float:
        return quantile_of(self._counts(now), q)
