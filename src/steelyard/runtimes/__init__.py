"""STARTS replicas. One file a runtime, one line in the table, one run of tests/runtimes/suite.py."""

from __future__ import annotations

from collections.abc import Callable

from .base import Instance, InstancePhase, ReplicaSpec, ReplicaStartError, Runtime, fingerprint
from .process.runtime import ProcessRuntime

RUNTIMES: dict[str, Callable[[str], Runtime]] = {"process": ProcessRuntime}  # made with the gateway's name

__all__ = [
    "RUNTIMES",
    "Instance",
    "InstancePhase",
    "ProcessRuntime",
    "ReplicaSpec",
    "ReplicaStartError",
    "Runtime",
    "fingerprint",
]
