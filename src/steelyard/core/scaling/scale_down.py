"""Which replicas to remove: the least valuable.

Lexicographic order: outdated settings, not ready, out of rotation, slowness above SLOW_FACTOR × the median, cost, cold
cache (or youth, by the minute), fewest requests in flight, youngest; ties by id. Caches are compared only where every
candidate reports one, in steps of a tenth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import NamedTuple

SLOW_FACTOR = 1.25  # less is within the error of estimates


class ScaleDownCandidate(NamedTuple):
    id: str
    outdated: bool = False  # started by settings that are no longer in force
    ready: bool = True
    in_rotation: bool = True  # not ejected, not unreachable
    slowness: float = 1.0
    age: float = 0.0  # seconds since it was started, or became ready
    cache: float | None = None  # share in use, if reported
    cost: float = 0.0  # of an hour
    in_flight: int = 0


class _Criterion(NamedTuple):
    badness: float  # the more, the sooner it goes
    words: str


def choose_removals(candidates: Iterable[ScaleDownCandidate], count: int) -> list[tuple[str, str]]:
    """Id, and why this one, of `count` candidates."""
    everyone = sorted(candidates, key=lambda c: c.id)
    reasons = _criteria(everyone)
    order = sorted(everyone, key=lambda c: [-r.badness for r in reasons[c.id]])  # stable: ties by id
    count = max(0, count)
    staying = [reasons[c.id] for c in order[count:]]
    return [(c.id, _reason(reasons[c.id], staying)) for c in order[:count]]


def _criteria(candidates: Sequence[ScaleDownCandidate]) -> dict[str, list[_Criterion]]:
    """What speaks against each candidate, the most important first."""
    in_use = [c.slowness for c in candidates if c.ready and c.in_rotation]
    typical = median_low(in_use) if in_use else 1.0
    cached = all(c.cache is not None for c in candidates)
    return {c.id: _criteria_of(c, typical, cached) for c in candidates}


def _criteria_of(c: ScaleDownCandidate, typical: float, cached: bool) -> list[_Criterion]:
    slow = c.slowness / typical if typical > 0 else 1.0
    return [
        _Criterion(c.outdated, "it was started with settings that are no longer in force"),
        _Criterion(not c.ready, "it is not ready yet"),
        _Criterion(not c.in_rotation, "it gets no requests: ejected or unreachable"),
        _Criterion(slow if slow > SLOW_FACTOR else 0.0, f"it is slow: {slow:.1f} times as long as a typical one"),
        _Criterion(c.cost, f"it costs most: {c.cost:g} an hour"),
        _cache_criterion(c, cached),
        _Criterion(-c.in_flight, f"it has the fewest requests in flight: {c.in_flight}"),
        _Criterion(-c.age, f"it is the youngest: {c.age:.0f} s old"),
    ]


def _cache_criterion(c: ScaleDownCandidate, cached: bool) -> _Criterion:
    """In coarse steps: among those about as warm the one with the fewest requests goes."""
    if cached and c.cache is not None:
        return _Criterion(-round(c.cache, 1), f"its cache is the coldest: {c.cache:.0%} in use")
    return _Criterion(-(c.age // 60), f"it is the youngest: {c.age:.0f} s old")


def _reason(mine: list[_Criterion], staying: list[list[_Criterion]]) -> str:
    """The first criterion that is worse than of one that stays."""
    if not staying:
        return "all go"
    for i, reason in enumerate(mine):
        if any(reason.badness > other[i].badness for other in staying):
            return reason.words
    return "it is no better than the others"
