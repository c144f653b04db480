"""The agent for Python model servers: readiness, load, memory, registration and drain. Only the standard library."""

from .agent import ReplicaAgent

__all__ = ["ReplicaAgent"]
