"""Replicas for tests."""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.config import ReplicaConfig


def replica(name: str, **more: object) -> ReplicaConfig:
    """`a` is http://a:80."""
    return ReplicaConfig(url=f"http://{name}:80", id=name, **more)  # type: ignore[arg-type]


def replicas(names: str | Iterable[str]) -> tuple[ReplicaConfig, ...]:
    """`a b c`"""
    return tuple(map(replica, names.split() if isinstance(names, str) else names))


def ids(found: Iterable[ReplicaConfig]) -> str:
    return " ".join(sorted(one.name for one in found))
