"""Durations counted under fixed bounds: what metrics show. A quantile is only as fine as these; core/histogram.py has
the exact ones."""

from __future__ import annotations

from typing import Final

DURATION_BOUNDS_SECONDS: Final[tuple[float, ...]] = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75,
    1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip

FIRST_BOUND_SECONDS: Final = DURATION_BOUNDS_SECONDS[0]  # most waits are shorter


class DurationCounts:
    """`counts[i]`: how many were above BOUNDS[i - 1] and not above BOUNDS[i]; the last: above all of them."""

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
