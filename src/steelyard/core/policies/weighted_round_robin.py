"""Smooth weighted round robin.

Idea: turns in proportion to the weights, spread evenly instead of in runs. Formula: at each pick every candidate gains
wᵢ; the one with the most credit is picked and pays Σw.

Source: nginx. Limits: a replica that slows down keeps its share.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..replica import Replica
from ..request import Request
from .base import Policy


def smooth_pick(candidates: Sequence[Replica], shares: Sequence[float]) -> Replica:
    """Each gains its share; the one with the most credit (in `notes`) is picked and pays the total."""
    total = 0.0
    best = candidates[0]
    best_credit = float("-inf")
    for replica, share in zip(candidates, shares, strict=True):
        replica.notes = credit = (replica.notes or 0.0) + share
        total += share
        # The margin keeps rounding from deciding between equals: the first wins, as in nginx.
        if credit > best_credit + 1e-9:
            best, best_credit = replica, credit
    best.notes = best_credit - total
    return best


class WeightedRoundRobin(Policy):
    rule = "each in turn, in proportion to its weight, spread evenly"
    wins = "hardware known to be unequal, requests alike"
    loses = "blind to what happens: a replica that slows down keeps its share"

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        return smooth_pick(candidates, [replica.effective_weight for replica in candidates])
