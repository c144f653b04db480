from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ..latency import DecayedMean
from ..outcome import Outcome
from ..replica import Replica
from ..request import Flight, Request
from .base import Policy, pick_by_share


class LeastResponseTime(Policy):
    """Least (in flight + 1) × decayed mean latency / weight (nginx Plus `least_time`)."""

    rule = "least (in flight + 1) × mean latency of the last seconds, divided by weight"
    wins = "replicas that differ in speed, requests alike"
    loses = "whoever drew the large requests looks slow"

    def __init__(self, rng: Random, *, tau: float = 10.0) -> None:
        super().__init__(rng)
        if tau <= 0:
            raise TypeError(f"tau must be positive, not {tau!r}")
        self._tau = tau
        self._pool_mean = DecayedMean(tau)  # what a replica nobody has tried yet is assumed to take

    def joined(self, replica: Replica, now: float) -> None:
        replica.notes = DecayedMean(self._tau)

    def finished(self, flight: Flight, seconds: float, outcome: Outcome, now: float) -> None:
        if flight.replica.notes is not None:
            flight.replica.notes.add(seconds, now)
        self._pool_mean.add(seconds, now)

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        unknown = self._pool_mean.value(1.0)
        least = float("inf")
        tied: list[Replica] = []
        for replica in candidates:
            score = (replica.load + 1) * replica.notes.value(unknown) / replica.share
            if score < least:
                least = score
                tied = [replica]
            elif score == least:
                tied.append(replica)
        return tied[0] if len(tied) == 1 else pick_by_share(tied, self._random())
