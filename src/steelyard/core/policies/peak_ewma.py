"""Peak EWMA: a latency average that jumps up at once and decays slowly.

Idea: the first slow answer shows a slow replica. Of two candidates drawn at random the cheaper one is chosen.

Formula: score = cost × (n + 1) / w. After an answer, cost = rtt if rtt > cost, else cost × k + rtt × (1 − k) with
k = e^(−Δt/τ); between answers the cost decays by k.

Source: Finagle's PeakEwma (Twitter), also in Linkerd. Limits: one large request looks like a slow replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from random import Random

from ..outcome import Outcome
from ..replica import Replica
from ..request import Attempt, Request
from ..statistics.latency import DecayedMean
from .base import Policy, number, random_pair, weighted_choice

UNANSWERED_PENALTY = 1e9


class _Peak:
    __slots__ = ("cost", "stamp")

    def __init__(self, now: float) -> None:
        self.cost = 0.0
        self.stamp = now


class PeakEwma(Policy):
    rule = "of two drawn at random, the lower peak-sensitive mean latency × (in flight + 1), divided by weight"
    wins = "reacts to a slow replica with its first slow answer"
    loses = "one large request looks like a slow replica"
    score_meaning = "requests there and this one × its recent peak seconds, divided by its weight"
    tie_break = "two are drawn at random, by weight, and the one with the lower score is taken"

    def __init__(self, rng: Random, *, tau: float = 10.0) -> None:
        super().__init__(rng)
        self._tau = number("tau", tau, above=0.0)
        self._usual = DecayedMean(tau)  # the cost assumed of a replica that has answered nothing yet

    def joined(self, replica: Replica, now: float) -> None:
        replica.notes = _Peak(now)

    def finished(self, attempt: Attempt, seconds: float, outcome: Outcome, now: float) -> None:
        self._usual.add(seconds, now)
        peak: _Peak | None = attempt.replica.notes
        if peak is None:
            return
        if seconds > peak.cost:
            peak.cost = seconds
        else:
            keep = exp(min(0.0, peak.stamp - now) / self._tau)
            peak.cost = peak.cost * keep + seconds * (1.0 - keep)
        peak.stamp = now

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        if len(candidates) == 1:
            return candidates[0]
        one, other = random_pair(candidates, self._random)
        mine, theirs = self._score(one, now), self._score(other, now)
        if abs(mine - theirs) > 1e-6 * (mine + theirs):
            return one if mine < theirs else other
        return weighted_choice((one, other), self._random())

    def score(self, request: Request, replica: Replica, now: float) -> float:
        return self._score(replica, now)

    def _score(self, replica: Replica, now: float) -> float:
        """As in Finagle, a replica that has not answered yet is tried first, with one request only."""
        peak: _Peak = replica.notes
        if not peak.cost:
            if replica.in_flight:
                return UNANSWERED_PENALTY * (replica.in_flight + 1) / replica.effective_weight
            return self._usual.value(1.0) * (replica.load + replica.failure_penalty) / replica.effective_weight
        cost = peak.cost * exp(min(0.0, peak.stamp - now) / self._tau)
        return cost * (replica.load + replica.failure_penalty + 1) / replica.effective_weight
