"""When to look again. Seconds from now, a tenth more or less by chance, so that many who look do not look together."""

from __future__ import annotations

from random import Random

MIN_RETRY_SECONDS = 1.0  # seconds: for a TTL of 0, and between two looks that fail
MIN_DELAY_SECONDS = 0.05  # for an interval of nothing: looking again at once, for ever, is what nobody wants


def delay_after_success(ttl: float | None, interval: float, rng: Random) -> float:
    """As long as the answer holds, but no longer than the interval."""
    return _jittered(interval if ttl is None else min(interval, max(MIN_RETRY_SECONDS, ttl)), rng)


def delay_after_failure(times: int, interval: float, rng: Random) -> float:
    """1, 2, 4 … seconds, but no longer than the interval. `times`: in a row, this one included."""
    return _jittered(min(interval, MIN_RETRY_SECONDS * 2.0 ** min(times - 1, 30)), rng)


def _jittered(seconds: float, rng: Random) -> float:
    return max(MIN_DELAY_SECONDS, seconds * (0.9 + 0.2 * rng.random()))
