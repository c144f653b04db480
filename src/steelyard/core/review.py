"""The look at a pool as a whole, once per `evaluation_interval`: what is typical, ejections, slow start, limits.

Idea: some passes over all replicas. A small pool is reviewed at once. Of a large one each call does a chunk, and the
calls are spread over most of the interval, so that none keeps the event loop: requests are decided in between. Who is
called late does more chunks, so a review takes as long as planned.

Limits: in a large pool a pass sees what has changed since the one before it; where nothing does, chunks find what a
look at once finds. A policy's own `tick` is one call.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, TypeVar

from .candidates import MANY_CANDIDATES, first_after
from .estimator.estimator import MIN_REQUESTS_FOR_FEATURES
from .replica import Replica
from .request import INFINITY

if TYPE_CHECKING:
    from .outliers.ejector import SilentCallback
    from .pool import Pool

T = TypeVar("T")
Steps = Generator[None, None, None]

LIGHT_CHUNK, HEAVY_CHUNK = 192, 64  # replicas, by what a pass does with each: some 15 µs, compiled
PASSES = 8  # for a first guess at the number of steps
SPREAD_OVER = 0.8  # of the interval
OVERDUE_QUANTILE = 0.999  # of actual / predicted duration: later is overdue
PEER_LOAD_TTL_INTERVALS = 3.0  # the peer that reported it may be gone


class Review:
    """One of a pool after the other. `now`: of the call that goes on with it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._steps: Steps | None = None
        self._began = 0.0
        self._done = 0  # steps of this one
        self._planned = 0  # as many as the last one had
        self._chunked = False
        self.now = 0.0

    @property
    def under_way(self) -> bool:
        return self._steps is not None

    def at_once(self, now: float, on_silent: SilentCallback | None) -> None:
        self._steps = None
        self._chunked = False
        self.now = now
        for _ in _steps(self._pool, self, on_silent):
            pass

    def go_on(self, now: float, on_silent: SilentCallback | None) -> float:
        """What is due. Returns when to call it again."""
        pool = self._pool
        interval = pool.options.evaluation_interval
        if self._steps is None:
            if len(pool.members) <= MANY_CANDIDATES:
                pool.tick_at = now + interval
                self.at_once(now, on_silent)
                return pool.tick_at
            self._planned = max(self._done, PASSES * (1 + len(pool.members) // LIGHT_CHUNK))
            self._began, self._done = now, 0
            self._chunked = True
            self._steps = _steps(pool, self, on_silent)
        self.now = now
        gap = SPREAD_OVER * interval / self._planned
        wanted = INFINITY if now >= self._began + SPREAD_OVER * interval else (now - self._began) / gap
        first, steps = True, self._steps
        while first or self._done < wanted:
            first = False
            self._done += 1
            try:
                next(steps)
            except StopIteration:
                self._steps = None
                return max(now, self._began + interval)
            except Exception:
                self._steps = None
                pool.tick_at = max(now, self._began + interval)
                raise
        return self._began + self._done * gap

    def members(self, size: int) -> Iterator[list[Replica]]:
        """In rotation, in chunks; some may come and go meanwhile."""
        if not self._chunked:
            yield self._pool.members
            return
        order = -1
        while True:
            members = self._pool.members
            start = first_after(members, order)
            if start >= len(members):
                return
            chunk = members[start : start + size]
            order = chunk[-1].order
            yield chunk

    def others(self, size: int) -> Iterator[list[Replica]]:
        """Out of rotation."""
        others = list(self._pool.out_of_rotation)
        for start in range(0, len(others), size if self._chunked else 1 + len(others)):
            yield others[start : start + size] if self._chunked else others


def finish(steps: Generator[None, None, T]) -> T:
    """All at once."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


def _steps(pool: Pool, review: Review, on_silent: SilentCallback | None) -> Steps:
    weights = array("d")
    busiest = own = 0
    for chunk in review.members(LIGHT_CHUNK):
        for replica in chunk:
            weights.append(replica.weight)
            _keep_up(pool, replica, review.now)
            if replica.load > busiest:
                busiest = replica.load
            own = max(own, replica.load - replica.external_load)
        yield
    pool.busiest = own
    estimator = pool.estimator
    yield from estimator.review(review, weights)
    known = estimator.samples >= MIN_REQUESTS_FOR_FEATURES
    pool.overdue = max(1.0, estimator.remaining.quantile(OVERDUE_QUANTILE)) if known else INFINITY
    if pool.options.concurrency == "auto":
        yield from _review_limits(pool, review, busiest)
    yield from _review_capacity(pool, review)
    yield from pool.exploration.review(review, pool.fastest, pool)
    pool.policy.tick(pool.members, review.now)
    yield
    yield from pool.ejector.review(review, on_silent)


def _keep_up(pool: Pool, replica: Replica, now: float) -> None:
    options = pool.options
    if (
        replica.other_load > replica.external_load
        and now - replica.peer_load_at > PEER_LOAD_TTL_INTERVALS * options.evaluation_interval
    ):
        pool.set_peer_load(replica, 0, now)
    if replica.external_load:
        readings = replica.external_readings
        if readings is not None and now >= readings.expires:
            pool.update_external_load(replica, now)
    if replica.ejection_backoff and now - replica.ready_since > options.outlier_detection.max_ejection_time:
        replica.ejection_backoff -= 1  # a long time without trouble: out for less next time
        replica.ready_since = now - options.slow_start
    if replica.slow_start_factor != 1.0:
        replica.failure_penalty = max(0, replica.failure_penalty - 1)  # so that it is tried again
        pool.update_effective_weight(replica, now)


def _review_limits(pool: Pool, review: Review, busiest: int) -> Steps:
    odd = pool.decide_limit("auto", len(pool.queue) > 0, busiest)
    for chunk in review.members(HEAVY_CHUNK):
        for replica in chunk:
            pool.apply_limit(replica, odd)
        yield
    for chunk in review.others(HEAVY_CHUNK):
        for replica in chunk:
            pool.apply_limit(replica, odd)
        yield


def _review_capacity(pool: Pool, review: Review) -> Steps:
    rate, fastest = 0.0, INFINITY
    for chunk in review.members(LIGHT_CHUNK):
        for replica in chunk:
            rate += 1.0 / replica.slowness
            if replica.slowness < fastest:
                fastest = replica.slowness
        yield
    pool.set_capacity(rate, fastest)
