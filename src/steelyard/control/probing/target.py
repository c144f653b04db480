"""Whom to probe, and how."""

from __future__ import annotations

from typing import NamedTuple

from ...config import HealthConfig, LoadMetricsConfig, ReplicaConfig, ReplicaTlsConfig

ReplicaKey = tuple[str, str]  # model, name of the replica


class ProbeTarget(NamedTuple):
    """All that a probe needs to know of one replica."""

    model: str  # `*`: any
    settings: ReplicaConfig
    dialect: str  # empty: told by each request's path, so the probe finds out what answers
    health: HealthConfig
    load: LoadMetricsConfig
    tls: ReplicaTlsConfig

    @property
    def key(self) -> ReplicaKey:
        return self.model, self.settings.name

    def is_same_server(self, other: ProbeTarget) -> bool:
        """Whatever else has changed: what was seen of the one is true of the other."""
        return (self.key, self.settings.url, self.tls) == (other.key, other.settings.url, other.tls)
