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
from itertools import islice
from random import Random
from typing import ClassVar

from ..estimator.least_cost import least_cost_replica
from ..pool import Pool
from ..replica import Replica
from ..request import INFINITY, Attempt, Request
from .base import Policy, number

SAMPLE_ABOVE_CANDIDATES = 64
SAMPLE_SIZE = 8
MAX_ATTEMPTS_SCANNED = 4  # of a full replica, for the one that ends first
NEAR_FASTEST_FACTOR = 1.1  # × the least slowness: nothing better to wait for


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
        self._soon: list[tuple[float, float]] = []
        self._soon_stamp = (-1.0, 0, 0)

    def attach(self, pool: Pool) -> None:
        self._pool = pool
        self._due = pool.exploration.due
        self._remaining = pool.estimator.remaining

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
            seconds += self._pool.estimator.queueing_delay(replica, now)
        return seconds + self._cold_seconds(request, replica)

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
        pool = self._pool
        if len(pool.open) == len(pool.members):
            return 0.0  # all have a slot free: it could have had a better one
        slowness = _penalized_slowness(replica)
        cold = self._cold_seconds(request, replica)
        if (slowness <= NEAR_FASTEST_FACTOR * pool.fastest and not cold) or not pool.service_rate:
            return 0.0  # as good as any: nothing to wait for
        base = request.base * self._remaining.mean
        here = base * slowness + cold
        queue = ahead / pool.service_rate
        best = INFINITY
        when = 0.0
        for free, other in self._soon_warm(request, now) if cold else self._soon_free(now):
            there = free + base * other
            if there < best:
                best = there
                when = free
        if here <= self._wait_factor * (best + queue):
            return 0.0
        return when + queue

    def _cold_seconds(self, request: Request, replica: Replica) -> float:
        if not request.cold_seconds or replica.warm is None or request.key in replica.warm:
            return 0.0
        return request.cold_seconds

    def _soon_warm(self, request: Request, now: float) -> list[tuple[float, float]]:
        """As `_soon_free`, of the busy replicas that hold what this request needs."""
        return [
            (self._free_in(r, now), _penalized_slowness(r))
            for r in self._busy()
            if r.warm is not None and request.key in r.warm
        ]

    def _soon_free(self, now: float) -> list[tuple[float, float]]:
        """Seconds until a slot is free, and slowness, of the busy replicas that no other beats in both. Cached for one
        pass over the queue."""
        pool = self._pool
        stamp = (now, pool.active, pool.finished)
        if stamp != self._soon_stamp:
            self._soon_stamp = stamp
            found = sorted((self._free_in(r, now), _penalized_slowness(r)) for r in self._busy())
            self._soon = []
            least = INFINITY
            for free, slowness in found:
                if slowness < least:
                    least = slowness
                    self._soon.append((free, slowness))
        return self._soon

    def _busy(self) -> list[Replica]:
        members = self._pool.members
        if len(members) <= SAMPLE_ABOVE_CANDIDATES:
            return [r for r in members if r.load >= r.limit]
        random = self._random
        count = len(members)
        return [r for r in (members[int(random() * count)] for _ in range(SAMPLE_SIZE)) if r.load >= r.limit]

    def _free_in(self, replica: Replica, now: float) -> float:
        soonest = INFINITY
        attempt: Attempt
        for attempt in islice(replica.running_attempts, MAX_ATTEMPTS_SCANNED):
            left = self._remaining.after(now - attempt.started, attempt.predicted)
            if left < soonest:
                soonest = left
        return soonest


def _penalized_slowness(replica: Replica) -> float:
    """Doubled for each recent failure in a row. Without slow start: while requests wait, any idle replica is better."""
    return replica.slowness * 2.0**replica.failure_penalty if replica.failure_penalty else replica.slowness
