"""The sources of one model as one list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...config import ReplicaConfig


class United(NamedTuple):
    replicas: tuple[ReplicaConfig, ...]
    doubles: tuple[tuple[str, ...], ...]  # for each source, the ids it names that one before it names too


def unite(sources: Iterable[Iterable[ReplicaConfig]]) -> United:
    """In their order; of two replicas with the same id, the first."""
    found: dict[str, ReplicaConfig] = {}
    doubles = []
    for replicas in sources:
        named = {replica.name: replica for replica in replicas}
        doubles.append(tuple(name for name in named if name in found))
        for name, replica in named.items():
            found.setdefault(name, replica)
    return United(tuple(found.values()), tuple(doubles))
