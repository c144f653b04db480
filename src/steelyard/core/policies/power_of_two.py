from __future__ import annotations

from collections.abc import Sequence

from ..replica import Replica
from ..request import Request
from .base import Policy, pressure


class PowerOfTwo(Policy):
    """Two different candidates at random, the less loaded one (Mitzenmacher 2001)."""

    rule = "of two drawn at random, the one with fewer requests in flight for its weight"
    wins = "many replicas or many balancers: no herd runs to the one that looked idle"
    loses = "few replicas: it often does not look at the idle one"

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        count = len(candidates)
        if count == 1:
            return candidates[0]
        random = self._random
        i = int(random() * count)
        j = int(random() * (count - 1))
        if j >= i:
            j += 1
        one, other = candidates[i], candidates[j]
        mine, theirs = pressure(one), pressure(other)
        if mine != theirs:
            return one if mine < theirs else other
        if one.share == other.share:
            return one
        return one if random() * (one.share + other.share) < one.share else other
