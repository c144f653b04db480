"""Join the shortest queue.

Idea: the replica with the fewest requests in flight for its weight. Formula: least (nᵢ + failure penalty) / wᵢ over all
candidates; ties at random by weight.

Source: Winston 1977; `least_conn` of nginx, `leastconn` of HAProxy. Limits: requests count alike, whatever their size.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..candidates import MANY_CANDIDATES
from ..pool import Pool
from ..replica import Replica
from ..request import Request
from .base import Policy, left_out, weighted_choice, weighted_load


class LeastConnections(Policy):
    rule = "fewest requests in flight, divided by weight; ties by weight"
    wins = "requests of about equal size: a very good default"
    loses = "one huge request counts as much as one tiny one"
    score_meaning = "requests there, divided by its weight"
    tie_break = "of several with the least score one is taken at random, by weight"

    def attach(self, pool: Pool) -> None:
        self._pool = pool

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        if len(candidates) > MANY_CANDIDATES and (index := self._pool.index_of(candidates)) is not None:
            return index.least_loaded(self._random, left_out(candidates), False)
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
