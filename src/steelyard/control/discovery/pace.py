"""When to look again. Seconds from now, a tenth more or less by chance, so that many who look do not look together."""

from __future__ import annotations

from random import Random

SHORTEST = 1.0  # seconds: for a TTL of 0, and between two looks that fail
LEAST = 0.05  # for an interval of nothing: looking again at once, for ever, is what nobody wants


def after_good(ttl: float | None, interval: float, rng: Random) -> float:
    """As long as the answer holds, but no longer than the interval."""
    return _about(interval if ttl is None else min(interval, max(SHORTEST, ttl)), rng)


def after_failed(times: int, interval: float, rng: Random) -> float:
    """1, 2, 4 … seconds, but no longer than the interval. `times`: in a row, this one included."""
    return _about(min(interval, SHORTEST * 2.0 ** min(times - 1, 30)), rng)


def _about(seconds: float, rng: Random) -> float:
    return max(LEAST, seconds * (0.9 + 0.2 * rng.random()))
