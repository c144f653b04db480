"""The result of one run, bounded in size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...core.statistics.histogram import Histogram
from .job import TokenJob
from .servers import Server


@dataclass
class Timeline:
    """Requests on each replica over time, sampled."""

    times: list[float] = field(default_factory=list)
    load: dict[str, list[int]] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)  # in the balancers' own lines


@dataclass
class FleetRecord:
    """Of a fleet whose size changed: cost, and samples, each list as long as `times`."""

    replica_seconds: float = 0.0  # from the order to start until the end, after the warm-up
    seconds: float = 0.0
    starts: int = 0
    peak_replicas: int = 0  # at once, without those that drain
    times: list[float] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    starting: list[int] = field(default_factory=list)
    offered: list[float] = field(default_factory=list)  # true work since the sample before, in replicas' worth
    late: list[float] = field(default_factory=list)  # share of the requests that ended since then

    @property
    def replica_hours(self) -> float:
        return self.replica_seconds / 3600.0

    @property
    def mean_replicas(self) -> float:
        return self.replica_seconds / self.seconds if self.seconds else 0.0


@dataclass
class TokenRecord:
    """Of streamed answers of batching engines."""

    first_byte_slo: float
    per_token_slo: float
    first_token: Histogram = field(default_factory=Histogram)  # seconds from when the request was due
    per_token: Histogram = field(default_factory=Histogram)  # mean seconds per further token of a request
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def add(self, job: TokenJob, intended_at: float, now: float) -> bool:
        """An answer is complete. Returns whether it was in time."""
        first = job.first_token_at - intended_at
        further = job.output_tokens - 1
        pace = (now - job.first_token_at) / further if further else 0.0
        self.first_token.add(first)
        if further:
            self.per_token.add(pace)
        self.prompt_tokens += job.prompt_tokens
        self.cached_tokens += job.cached_tokens
        self.output_tokens += job.output_tokens
        return first <= self.first_byte_slo and pace <= self.per_token_slo

    @property
    def hit_share(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else float("nan")


@dataclass
class RunResult:
    scenario: str
    policy: str
    load: float
    seed: int
    latency: Histogram = field(default_factory=Histogram)
    timeline: Timeline = field(default_factory=Timeline)
    requests: int = 0  # arrivals, warm-up included
    failed: int = 0
    within_slo: int = 0  # answered within the SLO and the deadline
    low_slowdown: int = 0  # answered within three times their own work
    refused: dict[str, int] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)  # per replica
    seconds: float = 0.0  # simulated
    scaler: str = ""  # empty: the fleet stays as it is
    fleet: FleetRecord | None = None
    tokens: TokenRecord | None = None  # of batching engines

    def close(self, requests: int, seconds: float, servers: Iterable[Server]) -> None:
        self.requests = requests
        self.seconds = seconds
        self.served = {server.id: server.served for server in servers}

    @property
    def measured_requests(self) -> int:
        """After the warm-up."""
        return self.latency.count + self.failed + sum(self.refused.values())

    @property
    def throughput(self) -> float:
        return self.requests / self.seconds if self.seconds else 0.0

    def share(self, number: int) -> float:
        return number / self.measured_requests if self.measured_requests else float("nan")
