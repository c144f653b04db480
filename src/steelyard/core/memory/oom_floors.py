"""Lower bounds learned from out-of-memory errors: a similar or larger request needs at least as much.

Idea: a size that is not admitted is never measured again, so floors decay: by DECAY_PER_MATCH with each measured
request of its size, by DECAY_PER_SAMPLE with any other.

Source: docs/decisions/0014-bytes-of-a-request.md. Limits: at most MAX_FLOORS; the most decayed is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .upper_bound import MAX_FEATURE

MAX_FLOORS = 16
SIMILAR_SIZE_SHARE = 0.9  # of one that ran out: taken for the same size
DECAY_PER_MATCH = 0.25
DECAY_PER_SAMPLE = 1 / 1024

FloorState = tuple[str, int, tuple[float, ...]]  # kind, bytes, and the features from which on


class OomFloor:
    __slots__ = ("bytes", "kind", "min_features", "remaining")

    def __init__(self, kind: str, amount: int, edge: tuple[float, ...]) -> None:
        self.kind = kind
        self.bytes = amount
        self.min_features = edge
        self.remaining = 1.0

    def applies_to(self, features: Sequence[float]) -> bool:
        """Is the request at least as large in all features? A NaN might be."""
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
        """The least a request needs. No kind: the most of any kind."""
        most = 0
        for floor in self._floors:
            if floor.bytes > most and (kind is None or floor.kind == kind) and floor.applies_to(features):
                most = floor.bytes
        return most

    def add(self, features: Sequence[float], kind: str, amount: int) -> bool:
        """True: it says something new."""
        edge = tuple([min(SIMILAR_SIZE_SHARE * x, x) if x <= MAX_FEATURE else MAX_FEATURE for x in features])
        floor = OomFloor(kind, amount, edge)
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
        """A request was measured, so it did not run out of memory. True: a floor is gone."""
        for floor in self._floors:
            matches = floor.kind == kind and floor.applies_to(features)
            floor.remaining -= DECAY_PER_MATCH if matches else DECAY_PER_SAMPLE
        before = len(self._floors)
        self._floors = [floor for floor in self._floors if floor.remaining > 0.0]
        return len(self._floors) < before

    def state(self) -> tuple[FloorState, ...]:
        return tuple([(floor.kind, floor.bytes, floor.min_features) for floor in self._floors])
