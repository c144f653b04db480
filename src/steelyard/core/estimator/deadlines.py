"""Can a request meet its deadlines? Checked at admission, and again as the latest time to start.

Idea: a total deadline is compared with the predicted end of the answer, a first-byte deadline with its predicted
beginning (first_byte.py). The one with less time to spare decides (`request.binding_deadline`).

Source: docs/decisions/0024-deadlines.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..request import INFINITY

if TYPE_CHECKING:
    from ..pool import Pool
    from ..request import Request

TOTAL: Final = "total"
FIRST_BYTE: Final = "first_byte"
MAX_REPLICAS_SAMPLED: Final = 32
PROBE_EVERY_REFUSALS: Final = 4  # of an idle pool: one in so many is tried all the same


def can_meet_deadlines(pool: Pool, request: Request, now: float) -> bool:
    """Has it an even chance, counting what waits before it?"""
    if not pool.estimator.samples or not pool.members:
        ready = 0.0 if pool.next_ready_is_guess else pool.ready_in(now)
        _note_binding_deadline(request, ready, ready, now)
        return now + ready < min(request.deadline, request.first_byte_by)
    wait = 0.0 if pool.open else pool.time_to_drain()
    total = wait + _seconds_to_end(pool, request, now)
    first = total
    if request.first_byte_by < INFINITY:
        first = wait + _seconds_to_first_byte(pool, request, total - wait, now)
    if _note_binding_deadline(request, total, first, now) >= 0.0:
        return True
    # Refused requests teach nothing: with nothing else running some are let through, or old slowness would stay.
    pool.refused_idle = 0 if pool.active else pool.refused_idle + 1
    in_future = now < min(request.deadline, request.first_byte_by)
    return in_future and pool.refused_idle >= PROBE_EVERY_REFUSALS and not (pool.refused_idle % PROBE_EVERY_REFUSALS)


def latest_start(pool: Pool, request: Request) -> float:
    """When it must be sent at the latest. Before anything is learned the base is no reason to refuse."""
    estimator = pool.estimator
    total = request.base * pool.fastest * estimator.remaining.median if estimator.samples else 0.0
    latest = request.deadline - total
    if latest < INFINITY:
        request.binding_deadline = TOTAL
    if request.first_byte_by < INFINITY:
        first = min(total, estimator.first_byte.seconds(request.features) * pool.fastest) if request.streams else total
        if request.first_byte_by - first < latest:
            latest = request.first_byte_by - first
            request.binding_deadline = FIRST_BYTE
    return latest


def _note_binding_deadline(request: Request, total: float, first: float, now: float) -> float:
    """Notes which deadline binds; returns the seconds to spare."""
    spare, spare_first = request.deadline - now - total, request.first_byte_by - now - first
    if spare_first < spare:
        request.binding_deadline, request.predicted_seconds = FIRST_BYTE, first
        return spare_first
    request.binding_deadline, request.predicted_seconds = TOTAL, total
    return spare


def _seconds_to_end(pool: Pool, request: Request, now: float) -> float:
    estimator = pool.estimator
    seconds = request.base * pool.fastest * estimator.remaining.median
    if pool.open and pool.limit > 1.0:
        replicas = pool.open
        count = len(replicas)
        step = 1 + count // MAX_REPLICAS_SAMPLED
        least = INFINITY
        place = 0
        while place < count and least > 0.0:
            replica = replicas[place]
            delay = estimator.queueing_delay(replica, now) if replica.load else 0.0
            if delay < least:
                least = delay
            place += step
        seconds += least
    return seconds


def _seconds_to_first_byte(pool: Pool, request: Request, total: float, now: float) -> float:
    """`total`: to its end, with which it begins if it is not streamed."""
    if not request.streams:
        return total
    replicas = pool.open or pool.members
    looked_at = replicas[:: 1 + len(replicas) // MAX_REPLICAS_SAMPLED]
    if pool.predicts_first_byte:
        predicted = pool.policy.predict_first_byte(request, looked_at, now)
        if predicted is not None:
            return predicted
    estimator = pool.estimator
    seconds = estimator.first_byte.seconds(request.features)
    if not pool.open:
        return min(total, seconds * pool.fastest)
    progress = estimator.curve.progress
    last = len(progress) - 1
    return min(total, seconds * min(r.slowness / progress[r.load + 1 if r.load < last else last] for r in looked_at))
