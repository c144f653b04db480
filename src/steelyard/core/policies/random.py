"""Weighted random choice: any candidate, with probability wᵢ / Σw. Limits: some replicas idle while others queue."""

from __future__ import annotations

from collections.abc import Sequence

from ..candidates import MANY_CANDIDATES
from ..pool import Pool
from ..replica import Replica
from ..request import Request
from .base import Policy, left_out, weighted_choice


class Random(Policy):
    rule = "any candidate, in proportion to its weight"
    wins = "the baseline to beat; needs no state, so any number of balancers agree"
    loses = "leaves some replicas idle while others queue"

    def attach(self, pool: Pool) -> None:
        self._pool = pool

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        if len(candidates) > MANY_CANDIDATES and (index := self._pool.index_of(candidates)) is not None:
            return index.by_weight(self._random(), left_out(candidates))
        return weighted_choice(candidates, self._random())
