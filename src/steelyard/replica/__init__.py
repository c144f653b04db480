"""The kit for Python model servers: readiness, load, memory, registration, and an end that loses nothing.

Only the standard library is imported here, so a model server pays nothing for what it does not use.
"""

from .agent import ReplicaAgent

__all__ = ["ReplicaAgent"]
