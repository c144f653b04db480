"""What requests that ran out of memory taught: one like them, or larger, needs at least so much.

A few of them, and forgotten slowly: by requests of that size that were measured since, and by very many others, for a
size that nobody is let run any more would never be measured again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .upper import HUGE

MOST_FLOORS = 16
ALIKE = 0.9  # a request so much smaller than one that ran out is taken for the same
CLEAN = 0.25  # of a floor goes with each request of its size that was measured
AGEING = 1 / 1024  # of it goes with any other

Plain = tuple[str, int, tuple[float, ...]]  # kind, bytes, and the features from which on


class Floor:
    __slots__ = ("bytes", "edge", "kind", "left")

    def __init__(self, kind: str, amount: int, edge: tuple[float, ...]) -> None:
        self.kind = kind
        self.bytes = amount
        self.edge = edge
        self.left = 1.0

    def holds_for(self, features: Sequence[float]) -> bool:
        """Is the request at least as large in all features? One that is not a number might be."""
        return not any(x < least for x, least in zip(features, self.edge, strict=False))

    def implies(self, other: Floor) -> bool:
        return (
            self.kind == other.kind
            and self.bytes >= other.bytes
            and len(self.edge) == len(other.edge)
            and self.holds_for(other.edge)
        )


class Floors:
    def __init__(self, floors: Iterable[Plain] = ()) -> None:
        self._floors = [Floor(*floor) for floor in floors]

    def under(self, features: Sequence[float], kind: str | None) -> int:
        """The least a request needs by them. No kind: whichever kind says most."""
        most = 0
        for floor in self._floors:
            if floor.bytes > most and (kind is None or floor.kind == kind) and floor.holds_for(features):
                most = floor.bytes
        return most

    def add(self, features: Sequence[float], kind: str, amount: int) -> bool:
        """Is there anything new in it?"""
        floor = Floor(kind, amount, tuple([min(ALIKE * x, x) if x <= HUGE else HUGE for x in features]))
        for other in self._floors:
            if other.implies(floor):
                other.left = 1.0
                return False
        self._floors = [other for other in self._floors if not floor.implies(other)]
        if len(self._floors) >= MOST_FLOORS:
            self._floors.remove(min(self._floors, key=lambda each: each.left))
        self._floors.append(floor)
        return True

    def wear(self, features: Sequence[float], kind: str) -> bool:
        """A request was measured, so it did not run out of memory. Is a floor gone by that?"""
        for floor in self._floors:
            floor.left -= CLEAN if floor.kind == kind and floor.holds_for(features) else AGEING
        gone = [floor for floor in self._floors if floor.left <= 0.0]
        for floor in gone:
            self._floors.remove(floor)
        return bool(gone)

    def plain(self) -> tuple[Plain, ...]:
        return tuple([(floor.kind, floor.bytes, floor.edge) for floor in self._floors])
