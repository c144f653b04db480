"""Is a better place than a free slot worth waiting for? `patience` of `least_work` (formula in policies/least_work.py),
apart from the policy to be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..replica import Replica
from ..request import INFINITY, Request

if TYPE_CHECKING:
    from ..pool import Pool

SAMPLE_ABOVE_CANDIDATES: Final = 64
SAMPLE_SIZE: Final = 8
MAX_ATTEMPTS_SCANNED: Final = 4  # of a full replica, for the one that ends first
NEAR_FASTEST_FACTOR: Final = 1.1  # × the least slowness: nothing better to wait for


class Patience:
    def __init__(self, pool: Pool, wait_factor: float, random: Callable[[], float]) -> None:
        self._pool = pool
        self._wait_factor = wait_factor
        self._random = random
        self._soon: list[tuple[float, float]] = []
        self._soon_at = -1.0
        self._active = self._finished = 0

    def seconds(self, request: Request, replica: Replica, ahead: float, now: float) -> float:
        pool = self._pool
        if len(pool.open) == len(pool.members):
            return 0.0  # all have a slot free: it could have had a better one
        slowness = penalized_slowness(replica)
        cold = cold_seconds(request, replica)
        if (slowness <= NEAR_FASTEST_FACTOR * pool.fastest and not cold) or not pool.service_rate:
            return 0.0  # as good as any: nothing to wait for
        base = request.base * pool.estimator.remaining.mean
        queue = ahead / pool.service_rate
        best = INFINITY
        when = 0.0
        for free, other in self._soon_warm(request.key, now) if cold else self._soon_free(now):
            there = free + base * other
            if there < best:
                best = there
                when = free
        return 0.0 if base * slowness + cold <= self._wait_factor * (best + queue) else when + queue

    def _soon_warm(self, key: str | None, now: float) -> list[tuple[float, float]]:
        """As `_soon_free`, of the full replicas that hold `key`."""
        return [
            (self._free_in(r, now), penalized_slowness(r)) for r in self._full() if r.warm is not None and key in r.warm
        ]

    def _soon_free(self, now: float) -> list[tuple[float, float]]:
        """Seconds until a slot is free, and slowness, of the full replicas that no other beats in both. Cached for one
        pass over the queue."""
        pool = self._pool
        if now != self._soon_at or pool.active != self._active or pool.finished != self._finished:
            self._soon_at, self._active, self._finished = now, pool.active, pool.finished
            self._soon = []
            least = INFINITY
            for pair in sorted([(self._free_in(r, now), penalized_slowness(r)) for r in self._full()]):
                if pair[1] < least:
                    least = pair[1]
                    self._soon.append(pair)
        return self._soon

    def _full(self) -> list[Replica]:
        members = self._pool.members
        count = len(members)
        if count <= SAMPLE_ABOVE_CANDIDATES:
            return [r for r in members if r.load >= r.limit]
        random = self._random
        return [r for r in [members[int(random() * count)] for _ in range(SAMPLE_SIZE)] if r.load >= r.limit]

    def _free_in(self, replica: Replica, now: float) -> float:
        remaining = self._pool.estimator.remaining
        soonest = INFINITY
        for scanned, attempt in enumerate(replica.running_attempts):
            if scanned == MAX_ATTEMPTS_SCANNED:
                break
            left = remaining.after(now - attempt.started, attempt.predicted)
            if left < soonest:
                soonest = left
        return soonest


def cold_seconds(request: Request, replica: Replica) -> float:
    if not request.cold_seconds or replica.warm is None or request.key in replica.warm:
        return 0.0
    return request.cold_seconds


def penalized_slowness(replica: Replica) -> float:
    """Doubled for each recent failure in a row. Without slow start: while requests wait, any idle replica is better."""
    return replica.slowness * 2.0**replica.failure_penalty if replica.failure_penalty else replica.slowness
