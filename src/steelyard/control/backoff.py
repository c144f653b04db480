"""Exponential backoff: the delay doubles with every failure in a row, up to a limit."""

from __future__ import annotations

MAX_DOUBLINGS = 30  # keeps the power finite after a million failures


def exponential_delay(first: float, longest: float, failures: int) -> float:
    """Seconds to wait after `failures` in a row, the last one included (at least 1)."""
    return min(longest, first * 2.0 ** min(failures - 1, MAX_DOUBLINGS))
