"""`concurrency: auto`: how many requests a replica should take at once, from the learned batching curve.

Idea: requests that wait for each other inside a replica are better queued here, from where they can go to another. Too
low a limit wastes an engine, too high a one merely queues inside it, so the limit starts high.

Formula: at elasticity ε, twice as many at once serve 2^(1−ε) times as much. Above LOWER_ABOVE_ELASTICITY the limit
falls, below RAISE_BELOW_ELASTICITY it rises where it is reached, each when ε is off by more than its standard error. A
serial server (ε = 1) ends at 1.

Source: docs/decisions/0004-concurrency.md. Limits: one ε cannot follow a curve with a knee, such as a few slots have.
"""

from __future__ import annotations

from math import ceil

from .batching_curve import MAX_CONCURRENCY, BatchingCurve

INITIAL_LIMIT = 256  # as many as engines batch by default
RAISE_BELOW_ELASTICITY = 0.6
LOWER_ABOVE_ELASTICITY = 0.85
PROBING_REPLICAS_ONE_IN = 4
PROBE_STEP_FACTOR = 1.5


def next_limit(curve: BatchingCurve, current: float, busiest: int) -> int:
    """The limit for the next second. `busiest`: the most requests on any replica lately."""
    if current > MAX_CONCURRENCY:
        return INITIAL_LIMIT  # it was unlimited
    doubt = curve.doubt
    if curve.elasticity - doubt > LOWER_ABOVE_ELASTICITY:
        # Down from what is in use, not from a limit no replica reaches.
        return max(1, int(min(current, max(busiest, 2)) * 0.6))
    if curve.elasticity + doubt < RAISE_BELOW_ELASTICITY and busiest >= current:
        return min(MAX_CONCURRENCY, ceil(current * 1.25))
    return int(current)


def probe_above(limit: int) -> int:
    return ceil(limit * PROBE_STEP_FACTOR)


def probe_below(curve: BatchingCurve, limit: int, busiest: int) -> int:
    """Where no replica reaches the limit, one that tries less must go below what is in use. Not where ε is known to be
    low: that costs an engine its evenness, and the limit would stay."""
    return (
        limit
        if busiest < 4 or curve.elasticity + curve.doubt < LOWER_ABOVE_ELASTICITY
        else min(limit, busiest * 3 // 4)
    )
