"""The inner loop of `least_work` (formula in policies/least_work.py), apart from the policy to be compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..replica import Replica, weighted_choice
from ..request import INFINITY, Request
from .estimator import Estimator
from .remaining_time import OVERRUN_FACTOR, STEPS_PER_UNIT


def least_cost_replica(
    request: Request,
    candidates: Sequence[Replica],
    estimator: Estimator,
    tie: float,
    random: Callable[[], float],
    now: float,
) -> Replica:
    """Of those that cost at most `tie` × the least, one with the fewest requests, by weight."""
    base = request.base
    cold = request.cold_seconds
    key = request.key
    interference = estimator.curve.choice_interference
    table = estimator.remaining.table
    steps = len(table)
    most = len(interference) - 1
    best = INFINITY
    replicas: list[Replica] = candidates if isinstance(candidates, list) else list(candidates)
    for replica in replicas:
        slowness = replica.slowness
        cost = base * slowness * replica.slow_start_factor
        n = replica.load
        if n:
            # estimator.queueing_cost, written out: this is the inner loop of every decision
            left = replica.other_load * estimator.typical_seconds * slowness if replica.other_load else 0.0
            oldest = replica.oldest
            if oldest is not None:
                alone = oldest.seconds_alone
                age = now - replica.oldest_since
                step = int(age / alone * STEPS_PER_UNIT) if age > 0.0 else 0
                left += (
                    replica.outstanding_work - alone + (alone * table[step] if step < steps else age * OVERRUN_FACTOR)
                )
            cost += left * interference[n + 1 if n < most else most]
        if cold and replica.warm is not None and key not in replica.warm:
            cost += cold
        replica.cost = cost
        if cost < best:
            best = cost
    return fewest_requests(replicas, best * tie, random)


def fewest_requests(replicas: list[Replica], limit: float, random: Callable[[], float]) -> Replica:
    """Of those whose `cost` is at most `limit`, one with the fewest requests, by weight."""
    tied: list[Replica] = []
    least = 0
    for replica in replicas:
        if replica.cost <= limit:
            n = replica.load
            if not tied or n < least:
                least = n
                tied = [replica]
            elif n == least:
                tied.append(replica)
    return tied[0] if len(tied) == 1 else weighted_choice(tied, random())
