from __future__ import annotations

from collections.abc import Sequence

from ..replica import Replica
from ..request import Request
from .base import Policy, pick_by_share, pressure


class LeastConnections(Policy):
    """Join the shortest queue: fewest requests in flight for its weight, over all candidates."""

    rule = "fewest requests in flight, divided by weight; ties by weight"
    wins = "requests of about equal size: a very good default"
    loses = "one huge request counts as much as one tiny one"

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        least = float("inf")
        tied: list[Replica] = []
        for replica in candidates:
            load = (replica.load + replica.strikes) / replica.share
            if load < least:
                least = load
                tied = [replica]
            elif load == least:
                tied.append(replica)
        return tied[0] if len(tied) == 1 else pick_by_share(tied, self._random())

    def score(self, request: Request, replica: Replica, now: float) -> float:
        return pressure(replica)
