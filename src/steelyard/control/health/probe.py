"""What is probed, and what one probe finds."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...config import HealthConfig, LoadMetricsConfig, ReplicaConfig, ReplicaTlsConfig
from ..fleet.registry import ReplicaKey


class ProbeTarget(NamedTuple):
    model: str  # `*`: any
    settings: ReplicaConfig
    dialect: str  # empty: by each request's path, so the probe detects the server
    health: HealthConfig
    load: LoadMetricsConfig
    tls: ReplicaTlsConfig

    @property
    def key(self) -> ReplicaKey:
        return self.model, self.settings.name

    def is_same_server(self, other: ProbeTarget) -> bool:
        """Results for one hold for the other."""
        return (self.key, self.settings.url, self.tls) == (other.key, other.settings.url, other.tls)


class ProbeStatus(Enum):
    READY = "ready"
    LOADING = "loading"  # it answers, and is not ready
    NOT_FOUND = "not_found"  # it answers, and does not know the request
    CONNECTION_REFUSED = "connection_refused"  # no process listens
    NO_RESPONSE = "no_response"  # no answer in time, or unreachable
    BROKEN = "broken"  # an invalid response, or the server itself says so
    UNKNOWN = "unknown"  # this machine could not probe: nothing was learned


MISCONFIGURED = "misconfigured"  # begins the message of a server that is not of the configured kind
ALIVE_STATUSES = frozenset((ProbeStatus.READY, ProbeStatus.LOADING, ProbeStatus.NOT_FOUND))


class ProbeResult(NamedTuple):
    status: ProbeStatus
    message: str  # in words
    instance: str = ""  # the server process's own name for itself
    seconds: float = 0.0  # the probe took
    definitive: bool = False  # the server itself says that it is not ready: no second probe is needed


class CheckResult(NamedTuple):
    """Of a warm-up or an inference."""

    problem: str = ""  # in words; empty: it passed
    ambiguous: bool = False  # too late or too busy: no failure if real requests make progress there
    inconclusive: bool = False  # this machine could not send it: nothing was learned
    note: str = ""  # worth reporting although it passed
    instance: str = ""
