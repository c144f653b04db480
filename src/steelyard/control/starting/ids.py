"""Names of started replicas: p1, p2, … and none twice in a supervisor's life."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

_NUMBERED = re.compile(r"p([1-9][0-9]{0,17})")


class ReplicaIds:
    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # by model

    def used(self, model: str, id: str) -> None:
        """By an earlier supervisor."""
        if match := _NUMBERED.fullmatch(id):
            self._last[model] = max(self._last.get(model, 0), int(match[1]))

    def was_used(self, model: str, id: str) -> bool:
        match = _NUMBERED.fullmatch(id)
        return match is not None and int(match[1]) <= self._last.get(model, 0)

    def next(self, model: str, taken: Container[str]) -> str:
        number = self._last.get(model, 0) + 1
        while f"p{number}" in taken:
            number += 1
        self._last[model] = number
        return f"p{number}"


def smallest_free(taken: Iterable[int]) -> int:
    there = set(taken)
    return next(number for number in range(len(there) + 1) if number not in there)
