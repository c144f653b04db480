"""Candidates of a decision in a large fleet: nothing here looks at all of them.

Candidates are in the order in which their replicas joined the pool (`Replica.order`), so a place is found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, cast

from .replica import Replica

MANY_CANDIDATES = 64  # up to so many, looking at all is cheaper


class CandidatesWithout:
    """A view of the open replicas without those that failed a request, valid until the next event."""

    __slots__ = ("every", "left_out", "places")

    def __init__(self, every: list[Replica], places: list[int]) -> None:
        """`places`: of those left out, ascending."""
        self.every = every
        self.places = places
        self.left_out = [every[place] for place in places]

    def __len__(self) -> int:
        return len(self.every) - len(self.places)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return list(self)[key]
        place = int(key)
        if place < 0:
            place += len(self)
        if not 0 <= place < len(self):
            raise IndexError("no such candidate")
        for hole in self.places:
            if place >= hole:
                place += 1
        return self.every[place]

    def __iter__(self) -> Iterator[Replica]:
        left_out = self.left_out
        for replica in self.every:
            if replica not in left_out:
                yield replica

    def __reversed__(self) -> Iterator[Replica]:
        return iter(list(self)[::-1])

    def __contains__(self, replica: object) -> bool:
        return isinstance(replica, Replica) and is_candidate(self.every, replica) and replica not in self.left_out

    def index(self, replica: Replica) -> int:
        return list(self).index(replica)

    def count(self, replica: Replica) -> int:
        return int(replica in self)


Sequence.register(CandidatesWithout)


def leave_out(every: list[Replica], orders: list[int], some: Sequence[Replica]) -> Sequence[Replica]:
    """Of many. `orders`: `order` of each, for bisection."""
    places: list[int] = []
    for replica in some:
        place = bisect_left(orders, replica.order)
        if place < len(every) and every[place] is replica and place not in places:
            places.append(place)
    if not places:
        return every
    places.sort()
    return cast("Sequence[Replica]", CandidatesWithout(every, places))


def is_candidate(candidates: Sequence[Replica], replica: Replica) -> bool:
    if len(candidates) <= MANY_CANDIDATES:
        return replica in candidates
    place = first_after(candidates, replica.order - 1)
    return place < len(candidates) and candidates[place] is replica


def first_after(candidates: Sequence[Replica], order: int) -> int:
    """The place of the first that joined later than the replica of this order; their number if none did."""
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        if candidates[middle].order <= order:
            low = middle + 1
        else:
            high = middle
    return low
