"""What one look at a replica shows."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...config import HealthConfig, LoadMetricsConfig, ReplicaConfig, ReplicaTlsConfig


class ProbeStatus(Enum):
    READY = "ready"
    LOADING = "loading"  # it answers, and is not ready
    ABSENT = "not_found"  # it answers, and does not know what was asked
    REFUSED = "connection_refused"  # nobody listens
    NO_RESPONSE = "no_response"  # no answer in time, or no way to it
    BROKEN = "broken"  # what it says is nonsense, or that it is beyond help
    UNKNOWN = "unknown"  # this machine could not look: nothing was learned


MISCONFIGURED = "misconfigured"  # with this begins what is told of a server that is not what it was said to be
ALIVE_STATUSES = frozenset((ProbeStatus.READY, ProbeStatus.LOADING, ProbeStatus.ABSENT))  # there is a server that lives


class ProbeResult(NamedTuple):
    status: ProbeStatus
    detail: str  # in words
    instance: str = ""  # who the server process says it is
    seconds: float = 0.0  # the look took
    definitive: bool = False  # the server itself says that it is not ready: no need to ask twice


class CheckResult(NamedTuple):
    """What came of a real request that was sent to try a replica out."""

    problem: str = ""  # in words; empty: it went well
    ambiguous: bool = False  # too late or too busy: no failure, if real requests make progress there
    inconclusive: bool = False  # this machine could not ask: nothing was learned
    note: str = ""  # what should be known although it went well
    instance: str = ""


# Whom to probe, and how.

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
