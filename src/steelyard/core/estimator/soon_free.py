"""Which full replicas soon have a free slot: what a request may wait for. Apart from the policy, to be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..replica import Replica
from ..request import INFINITY

if TYPE_CHECKING:
    from ..pool import Pool

SAMPLE_ABOVE_CANDIDATES = 64
SAMPLE_SIZE = 8
MAX_ATTEMPTS_SCANNED = 4  # of a full replica, for the one that ends first


class SoonFree:
    """Pairs of seconds until a slot is free, and slowness; above 64 replicas, of a sample."""

    def __init__(self, pool: Pool, random: Callable[[], float]) -> None:
        self._pool = pool
        self._random = random
        self._found: list[tuple[float, float]] = []
        self._found_at = -1.0
        self._active = self._finished = 0

    def all(self, now: float) -> list[tuple[float, float]]:
        """Of the full replicas that no other beats in both. Cached for one pass over the queue."""
        pool = self._pool
        if now != self._found_at or pool.active != self._active or pool.finished != self._finished:
            self._found_at, self._active, self._finished = now, pool.active, pool.finished
            self._found = []
            least = INFINITY
            for pair in sorted([(self._seconds(r, now), penalized_slowness(r)) for r in self._full()]):
                if pair[1] < least:
                    least = pair[1]
                    self._found.append(pair)
        return self._found

    def warm(self, key: str | None, now: float) -> list[tuple[float, float]]:
        """Of the full replicas that hold `key`."""
        return [
            (self._seconds(r, now), penalized_slowness(r)) for r in self._full() if r.warm is not None and key in r.warm
        ]

    def _full(self) -> list[Replica]:
        members = self._pool.members
        count = len(members)
        if count <= SAMPLE_ABOVE_CANDIDATES:
            return [r for r in members if r.load >= r.limit]
        random = self._random
        return [r for r in [members[int(random() * count)] for _ in range(SAMPLE_SIZE)] if r.load >= r.limit]

    def _seconds(self, replica: Replica, now: float) -> float:
        remaining = self._pool.estimator.remaining
        soonest = INFINITY
        for scanned, attempt in enumerate(replica.running_attempts):
            if scanned == MAX_ATTEMPTS_SCANNED:
                break
            left = remaining.after(now - attempt.started, attempt.predicted)
            if left < soonest:
                soonest = left
        return soonest


def best_place(places: list[tuple[float, float]], base: float) -> tuple[float, float]:
    """When the one is free where a request of `base` seconds would be done first, and in how many seconds that is."""
    best, when = INFINITY, 0.0
    for free, slowness in places:
        seconds = free + base * slowness
        if seconds < best:
            best, when = seconds, free
    return when, best


def penalized_slowness(replica: Replica) -> float:
    """Doubled for each recent failure in a row. Without slow start: while requests wait, any idle replica is better."""
    return replica.slowness * 2.0**replica.failure_penalty if replica.failure_penalty else replica.slowness
