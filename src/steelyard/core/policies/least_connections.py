"""Join the shortest queue.

Idea: the replica with the fewest requests in flight for its weight. Formula: least (nᵢ + failure penalty) / wᵢ over all
candidates; ties at random by weight.

Source: Winston 1977; `least_conn` of nginx, `leastconn` of HAProxy. Limits: requests count alike, whatever their size.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..replica import Replica
from ..request import Request
from .base import Policy, weighted_choice, weighted_load


class LeastConnections(Policy):
    rule = "fewest requests in flight, divided by weight; ties by weight"
    wins = "requests of about equal size: a very good default"
    loses = "one huge request counts as much as one tiny one"
    score_meaning = "requests there, divided by its weight"
    tie_break = "of several with the least score one is taken at random, by weight"

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        least = float("inf")
        tied: list[Replica] = []
        for replica in candidates:
            load = (replica.load + replica.failure_penalty) / replica.effective_weight
            if load < least:
                least = load
                tied = [replica]
            elif load == least:
                tied.append(replica)
        return tied[0] if len(tied) == 1 else weighted_choice(tied, self._random())

    def score(self, request: Request, replica: Replica, now: float) -> float:
        return weighted_load(replica)
