"""Least work left, in estimated seconds, with late binding.

Idea: the replica that will finish this request soonest. Costs within `tie` count as equal, and the fewest requests
decide. With a concurrency limit the rest wait in one queue, and `patience` keeps a request from a slow replica while a
faster one is about to be free.

Formula: costᵢ = base × slownessᵢ × slow startᵢ + queueing delayᵢ + cold (core/estimator). A request goes now if seconds
here ≤ wait_factor × (time until a better one is free + seconds there + work queued before it).

Source: Harchol-Balter, "Performance Modeling and Design of Computer Systems", 2013 (least work left); Ousterhout et
al., Sparrow, SOSP 2013 (late binding); docs/decisions/0002-late-binding-and-patience.md. Limits: needs some 30 requests
to know the sizes; above 64 candidates it compares a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar

from ..estimator.least_cost import least_cost_replica
from ..estimator.patience import SAMPLE_ABOVE_CANDIDATES, SAMPLE_SIZE, Patience, cold_seconds
from ..pool import Pool
from ..replica import Replica
from ..request import Request
from .base import Policy, number


class LeastWork(Policy):
    renamed_options: ClassVar[dict[str, str]] = {"hold": "wait_factor"}

    rule = "the replica that will finish this request soonest, by learned seconds of work; waits for a better one"
    wins = "uneven requests, uneven replicas: most real model serving"
    loses = "nothing measurable where all is equal; needs some 30 requests to know the sizes"
    score_meaning = "seconds until it would be done there"
    tie_break = (
        "scores within a tenth of the least count as equal; of these the one with the fewest requests in flight is "
        "taken, and of several such one at random, by weight"
    )
    score_tolerance = 1.1
    exploration_ratio = 1.5  # core/estimator/exploration.py
    chosen_because = "expected to finish it soonest"

    def __init__(self, rng: Random, *, wait_factor: float = 1.0, tie: float = 0.1) -> None:
        super().__init__(rng)
        self._wait_factor = number("wait_factor", wait_factor, least=1.0)
        self._tie = 1.0 + number("tie", tie, least=0.0)
        self._last: Replica | None = None
        self._spared: Request | None = None  # the last one that was given to a trial

    def attach(self, pool: Pool) -> None:
        self._pool = pool
        self._due = pool.exploration.due
        self._patience = Patience(pool, self._wait_factor, self._random)

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        if self._due:
            trial = self._pool.exploration.take(request, candidates, self._pool.estimator.typical_seconds, now)
            if trial is not None:
                self._spared = request
                return trial
        if len(candidates) == 1:
            return candidates[0]
        if len(candidates) > SAMPLE_ABOVE_CANDIDATES:
            candidates = self._sample(request, candidates)
        self._last = choice = least_cost_replica(
            request, candidates, self._pool.estimator, self._tie, self._random, now
        )
        return choice

    def score(self, request: Request, replica: Replica, now: float) -> float:
        """As in core/estimator/least_cost.py."""
        seconds = request.base * replica.slowness * replica.slow_start_factor
        if replica.load:
            seconds += self._pool.estimator.queueing_cost(replica, now)
        return seconds + cold_seconds(request, replica)

    def _sample(self, request: Request, candidates: Sequence[Replica]) -> list[Replica]:
        random = self._random
        count = len(candidates)
        drawn = {candidates[int(random() * count)]: None for _ in range(SAMPLE_SIZE)}
        last = self._last
        if last is not None and self._pool.is_open(last) and last not in request.avoid:
            drawn[last] = None
        return list(drawn)

    def patience(self, request: Request, replica: Replica, ahead: float, now: float) -> float:
        if request is self._spared:
            self._spared = None
            return 0.0
        return self._patience.seconds(request, replica, ahead, now)
