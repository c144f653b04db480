"""Which replicas go when there are too many: the least valuable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import NamedTuple

SLOW = 1.25  # times the median; less is within what estimates are off by


class Candidate(NamedTuple):
    id: str
    outdated: bool = False  # started by settings that are no longer in force
    ready: bool = True
    useful: bool = True  # not ejected, not unreachable
    slowness: float = 1.0  # seconds there for one on a typical replica
    age: float = 0.0  # seconds since it was started, or became ready: an old one has a warm cache
    cache: float | None = None  # share of its cache in use, if it says
    cost: float = 0.0  # of an hour
    in_flight: int = 0


class _Reason(NamedTuple):
    badness: float  # the more, the sooner it goes
    words: str


def leavers(candidates: Iterable[Candidate], count: int) -> list[tuple[str, str]]:
    """Of these so many: id, and why this one, in words."""
    everyone = sorted(candidates, key=lambda c: c.id)
    reasons = _reasons(everyone)
    order = sorted(everyone, key=lambda c: [-r.badness for r in reasons[c.id]])  # stable: ties by id
    count = max(0, count)
    staying = [reasons[c.id] for c in order[count:]]
    return [(c.id, _why(reasons[c.id], staying)) for c in order[:count]]


def _reasons(candidates: Sequence[Candidate]) -> dict[str, list[_Reason]]:
    """Of each candidate, what speaks against it; what counts most comes first."""
    in_use = [c.slowness for c in candidates if c.ready and c.useful]
    typical = median_low(in_use) if in_use else 1.0
    cached = all(c.cache is not None for c in candidates)
    return {c.id: _against(c, typical, cached) for c in candidates}


def _against(c: Candidate, typical: float, cached: bool) -> list[_Reason]:
    slow = c.slowness / typical if typical > 0 else 1.0
    return [
        _Reason(c.outdated, "it runs by settings that are no longer in force"),
        _Reason(not c.ready, "it is not ready yet"),
        _Reason(not c.useful, "it gets no requests: ejected or unreachable"),
        _Reason(slow if slow > SLOW else 0.0, f"it is slow: {slow:.1f} times as long as a typical one"),
        _Reason(c.cost, f"it costs most: {c.cost:g} an hour"),
        _cold(c, cached),
        _Reason(-c.in_flight, f"it has the fewest requests in flight: {c.in_flight}"),
        _Reason(-c.age, f"it is the youngest: {c.age:.0f} s old"),
    ]


def _cold(c: Candidate, cached: bool) -> _Reason:
    """In coarse steps, so that among those about as warm the one with the fewest requests goes."""
    if cached and c.cache is not None:
        return _Reason(-round(c.cache, 1), f"its cache is the coldest: {c.cache:.0%} in use")
    return _Reason(-(c.age // 60), f"it is the youngest: {c.age:.0f} s old")


def _why(mine: list[_Reason], staying: list[list[_Reason]]) -> str:
    """The first thing that speaks more against it than against someone who stays."""
    if not staying:
        return "all go"
    for i, reason in enumerate(mine):
        if any(reason.badness > other[i].badness for other in staying):
            return reason.words
    return "it is no better than the others"
