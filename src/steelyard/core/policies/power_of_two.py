"""The power of two choices.

Idea: comparing two random candidates avoids nearly all the imbalance of a random choice, and several balancers do not
all pick the same idle replica. Formula: of two different candidates, the lower nᵢ / wᵢ.

Source: Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001; Envoy's least request. Limits: with
few replicas it often misses the idle one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..replica import Replica
from ..request import Request
from .base import Policy, random_pair, weighted_choice, weighted_load


class PowerOfTwo(Policy):
    rule = "of two drawn at random, the one with fewer requests in flight for its weight"
    wins = "many replicas or many balancers: they do not all pick the same idle replica"
    loses = "few replicas: it often misses the idle one"
    score_meaning = "requests there, divided by its weight"
    tie_break = "two are drawn at random, by weight, and the one with the lower score is taken"

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        if len(candidates) == 1:
            return candidates[0]
        one, other = random_pair(candidates, self._random)
        mine, theirs = weighted_load(one), weighted_load(other)
        if mine != theirs:
            return one if mine < theirs else other
        return one if one.effective_weight == other.effective_weight else weighted_choice((one, other), self._random())

    def score(self, request: Request, replica: Replica, now: float) -> float:
        return weighted_load(replica)
