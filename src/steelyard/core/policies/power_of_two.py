from __future__ import annotations

from collections.abc import Sequence

from ..replica import Replica
from ..request import Request
from .base import Policy, pick_by_share, pressure, two_of


class PowerOfTwo(Policy):
    """Two different candidates at random, the less loaded one (Mitzenmacher 2001)."""

    rule = "of two drawn at random, the one with fewer requests in flight for its weight"
    wins = "many replicas or many balancers: no herd runs to the one that looked idle"
    loses = "few replicas: it often does not look at the idle one"

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        if len(candidates) == 1:
            return candidates[0]
        one, other = two_of(candidates, self._random)
        mine, theirs = pressure(one), pressure(other)
        if mine != theirs:
            return one if mine < theirs else other
        return one if one.share == other.share else pick_by_share((one, other), self._random())

    def score(self, request: Request, replica: Replica, now: float) -> float:
        return pressure(replica)
