"""STARTS replicas. A runtime is one package or file, with the struct of its configuration, one line in the table
(config/sections/runtime.py), and one run of tests/runtimes/suite.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..config.sections.runtime import RuntimeConfig
from .base import Instance, InstancePhase, ReplicaSpec, ReplicaStartError, Runtime

__all__ = ["RUNTIMES", "Instance", "InstancePhase", "ReplicaSpec", "ReplicaStartError", "Runtime"]


def _open(kind: str, gateway: str) -> Runtime:
    runtime: Runtime = RuntimeConfig.struct_of(kind).open(gateway)
    return runtime


RUNTIMES: dict[str, Callable[[str], Runtime]] = {kind: partial(_open, kind) for kind in RuntimeConfig.kinds}
