"""Lower bounds learned from out-of-memory errors: a similar or larger request needs at least as much.

Idea: a size that is no longer admitted is never measured again, so floors must decay. Formula: a floor loses
DECAY_PER_MATCH with each measured request of its size, DECAY_PER_SAMPLE with any other.

Source: docs/decisions/0014-bytes-of-a-request.md. Limits: at most MAX_FLOORS; the most decayed is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .upper_bound import MAX_FEATURE

MAX_FLOORS = 16
SIMILAR_SIZE_SHARE = 0.9  # a request so much smaller than one that ran out is taken for the same
DECAY_PER_MATCH = 0.25  # of a floor goes with each request of its size that was measured
DECAY_PER_SAMPLE = 1 / 1024  # of it goes with any other

FloorState = tuple[str, int, tuple[float, ...]]  # kind, bytes, and the features from which on


class OomFloor:
    __slots__ = ("bytes", "kind", "min_features", "remaining")

    def __init__(self, kind: str, amount: int, edge: tuple[float, ...]) -> None:
        self.kind = kind
        self.bytes = amount
        self.min_features = edge
        self.remaining = 1.0

    def applies_to(self, features: Sequence[float]) -> bool:
        """Is the request at least as large in all features? One that is not a number might be."""
        return not any(x < least for x, least in zip(features, self.min_features, strict=False))

    def implies(self, other: OomFloor) -> bool:
        return (
            self.kind == other.kind
            and self.bytes >= other.bytes
            and len(self.min_features) == len(other.min_features)
            and self.applies_to(other.min_features)
        )


class OomFloors:
    def __init__(self, floors: Iterable[FloorState] = ()) -> None:
        self._floors = [OomFloor(*floor) for floor in floors]

    def bytes_for(self, features: Sequence[float], kind: str | None) -> int:
        """The least a request needs by them. No kind: whichever kind says most."""
        most = 0
        for floor in self._floors:
            if floor.bytes > most and (kind is None or floor.kind == kind) and floor.applies_to(features):
                most = floor.bytes
        return most

    def add(self, features: Sequence[float], kind: str, amount: int) -> bool:
        """Is there anything new in it?"""
        floor = OomFloor(
            kind, amount, tuple([min(SIMILAR_SIZE_SHARE * x, x) if x <= MAX_FEATURE else MAX_FEATURE for x in features])
        )
        for other in self._floors:
            if other.implies(floor):
                other.remaining = 1.0
                return False
        self._floors = [other for other in self._floors if not floor.implies(other)]
        if len(self._floors) >= MAX_FLOORS:
            self._floors.remove(min(self._floors, key=lambda each: each.remaining))
        self._floors.append(floor)
        return True

    def decay(self, features: Sequence[float], kind: str) -> bool:
        """A request was measured, so it did not run out of memory. Is a floor gone by that?"""
        for floor in self._floors:
            floor.remaining -= (
                DECAY_PER_MATCH if floor.kind == kind and floor.applies_to(features) else DECAY_PER_SAMPLE
            )
        gone = [floor for floor in self._floors if floor.remaining <= 0.0]
        for floor in gone:
            self._floors.remove(floor)
        return bool(gone)

    def state(self) -> tuple[FloorState, ...]:
        return tuple([(floor.kind, floor.bytes, floor.min_features) for floor in self._floors])
