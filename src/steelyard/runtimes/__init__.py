"""Starts replicas. A runtime is one package or file, with its configuration struct, one line in the table
(config/sections/runtime.py), and one run of tests/runtimes/suite.py."""

from __future__ import annotations

from ..config.sections.runtime import RuntimeConfig
from .base import Instance, InstancePhase, ReplicaSpec, ReplicaStartError, Runtime

__all__ = ["Instance", "InstancePhase", "ReplicaSpec", "ReplicaStartError", "Runtime", "open_runtimes"]


def open_runtimes(gateway: str) -> dict[str, Runtime]:
    """All of the table, by kind: an earlier supervisor may have left replicas."""
    return {kind: RuntimeConfig.struct_of(kind).open(gateway) for kind in RuntimeConfig.kinds}
