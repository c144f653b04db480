"""Least expected response time, by the recent mean.

Idea: the requests there, times how long one takes there. Formula: least (nᵢ + 1) × mean rttᵢ / wᵢ, the mean decayed
with time constant `tau`; a replica not tried yet has the mean of the pool.

Source: `least_time` of nginx Plus. Limits: a replica that got large requests looks slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ..outcome import Outcome
from ..replica import Replica
from ..request import Attempt, Request
from ..statistics.latency import DecayedMean
from .base import Policy, number, weighted_choice

TIE_FACTOR = 1.001


class LeastResponseTime(Policy):
    rule = "least (in flight + 1) × mean latency of the last seconds, divided by weight"
    wins = "replicas that differ in speed, requests alike"
    loses = "a replica that got large requests looks slow"
    score_meaning = "requests there and this one × its recent mean seconds, divided by its weight"
    tie_break = "of several with the least score one is taken at random, by weight"

    def __init__(self, rng: Random, *, tau: float = 10.0) -> None:
        super().__init__(rng)
        self._tau = number("tau", tau, above=0.0)
        self._pool_mean = DecayedMean(tau)  # assumed for a replica not tried yet

    def joined(self, replica: Replica, now: float) -> None:
        replica.notes = DecayedMean(self._tau)

    def finished(self, attempt: Attempt, seconds: float, outcome: Outcome, now: float) -> None:
        if attempt.replica.notes is not None:
            attempt.replica.notes.add(seconds, now)
        self._pool_mean.add(seconds, now)

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        unknown = self._pool_mean.value(1.0)
        scores = [(r.load + r.failure_penalty + 1) * r.notes.value(unknown) / r.effective_weight for r in candidates]
        # Means of equal latencies differ in their last digits.
        limit = min(scores) * TIE_FACTOR
        tied = [replica for replica, score in zip(candidates, scores, strict=True) if score <= limit]
        return tied[0] if len(tied) == 1 else weighted_choice(tied, self._random())

    def score(self, request: Request, replica: Replica, now: float) -> float:
        mean = float(replica.notes.value(self._pool_mean.value(1.0)))
        return (replica.load + replica.failure_penalty + 1) * mean / replica.effective_weight
