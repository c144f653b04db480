"""The agent for Python model servers: readiness, load, memory, registration and drain.

Imports only the standard library, so a model server pays nothing for what it does not use.
"""

from .agent import ReplicaAgent

__all__ = ["ReplicaAgent"]
