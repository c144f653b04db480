"""Weighted random choice: any candidate, with probability wᵢ / Σw. Limits: some replicas idle while others queue."""

from __future__ import annotations

from collections.abc import Sequence

from ..replica import Replica
from ..request import Request
from .base import Policy, weighted_choice


class Random(Policy):
    rule = "any candidate, in proportion to its weight"
    wins = "the baseline to beat; needs no state, so any number of balancers agree"
    loses = "leaves some replicas idle while others queue"

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        return weighted_choice(candidates, self._random())
