"""Delays between polls and retries.

Exponential backoff: the delay doubles with every failure in a row, up to a limit. Jitter: a tenth more or less by
chance, so that many pollers do not act at the same moment.
"""

from __future__ import annotations

from random import Random

JITTER_RATIO = 0.1
MAX_DOUBLINGS = 30  # keeps the power finite after a million failures


def exponential_delay(first: float, longest: float, failures: int) -> float:
    """Seconds to wait after `failures` in a row, the last one included (at least 1)."""
    return min(longest, first * 2.0 ** min(failures - 1, MAX_DOUBLINGS))


def jittered(seconds: float, rng: Random) -> float:
    return seconds * rng.uniform(1.0 - JITTER_RATIO, 1.0 + JITTER_RATIO)
