"""Starts replicas. A runtime is one package or file, with its configuration struct, one line in the table
(config/sections/runtime.py), and one run of tests/runtimes/suite.py."""

from __future__ import annotations

from .base import Instance, InstancePhase, ReplicaSpec, ReplicaStartError, Runtime

__all__ = ["Instance", "InstancePhase", "ReplicaSpec", "ReplicaStartError", "Runtime"]
