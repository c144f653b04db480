"""Round robin weighted by tail latency.

Idea: a replica whose recent p99 is above the others' gets a smaller share.

Formula: smooth weighted round robin with weights wᵢ × clip(median p99 / p99ᵢ, 0.1, 10), recomputed each tick.

Source: a common practice of SRE teams. Limits: it reacts after the queue has built up; below `min_samples` answers a
replica keeps its plain weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import median
from typing import ClassVar

from ..replica import Replica
from ..request import Request
from .base import Policy, number
from .weighted_round_robin import smooth_pick

MIN_WEIGHT_FACTOR, MAX_WEIGHT_FACTOR = 0.1, 10.0


class LatencyAware(Policy):
    renamed_options: ClassVar[dict[str, str]] = {"least_samples": "min_samples"}

    rule = "round robin with weights inverse to each replica's recent p99, relative to the pool's"
    wins = "slow drift of single replicas; the classic p99 routing"
    loses = "reacts late: by the time the p99 shows it, the queue has built up"

    def __init__(self, rng: Random, *, percentile: float = 99.0, min_samples: int = 10) -> None:
        super().__init__(rng)
        self._quantile = number("percentile", percentile, above=0.0, below=100.0) / 100
        self._min_samples = number("min_samples", min_samples, least=1)
        self._factor: dict[Replica, float] = {}

    def left(self, replica: Replica, now: float) -> None:
        self._factor.pop(replica, None)

    def tick(self, members: Sequence[Replica], now: float) -> None:
        tails = {
            r: r.latency.quantile(self._quantile, now) for r in members if r.latency.count(now) >= self._min_samples
        }
        if not tails:
            return
        typical = median(tails.values())
        self._factor = {r: min(MAX_WEIGHT_FACTOR, max(MIN_WEIGHT_FACTOR, typical / tail)) for r, tail in tails.items()}

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        factor = self._factor
        return smooth_pick(candidates, [r.effective_weight * factor.get(r, 1.0) for r in candidates])
