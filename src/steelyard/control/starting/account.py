"""What a model's started replicas have cost."""

from __future__ import annotations

from .started import ManagedReplica


class ReplicaUsage:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.cost = 0.0
        self.starts = self.stops = self.crashes = 0

    def charge(self, replica: ManagedReplica, price: float, now: float) -> None:
        """For its time until now; `price`: of an hour."""
        seconds = max(0.0, now - replica.charged_until)
        replica.charged_until = now
        self.seconds += seconds
        self.cost += seconds / 3600.0 * price
