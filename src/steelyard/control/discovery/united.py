"""The sources of one model as one list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...config import ReplicaConfig


class MergedReplicas(NamedTuple):
    replicas: tuple[ReplicaConfig, ...]
    duplicates: tuple[tuple[str, ...], ...]  # for each source, the ids it names that one before it names too


def merge_replicas(sources: Iterable[Iterable[ReplicaConfig]]) -> MergedReplicas:
    """In their order; of two replicas with the same id, the first."""
    found: dict[str, ReplicaConfig] = {}
    doubles = []
    for replicas in sources:
        named = {replica.name: replica for replica in replicas}
        doubles.append(tuple(name for name in named if name in found))
        for name, replica in named.items():
            found.setdefault(name, replica)
    return MergedReplicas(tuple(found.values()), tuple(doubles))
