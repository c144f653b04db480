"""What one run showed: bounded in size, whatever the number of requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..core.histogram import Histogram
from .servers import Server


@dataclass
class Timeline:
    """Requests on each replica over time, sampled."""

    times: list[float] = field(default_factory=list)
    load: dict[str, list[int]] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)  # in the balancers' own lines


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
    met: int = 0  # answered within the SLA and the deadline
    prompt: int = 0  # answered within three times their own work
    refused: dict[str, int] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)  # per replica
    seconds: float = 0.0  # simulated

    def close(self, requests: int, seconds: float, servers: Iterable[Server]) -> None:
        self.requests = requests
        self.seconds = seconds
        self.served = {server.id: server.served for server in servers}

    @property
    def counted(self) -> int:
        """Requests after the warm-up, however they ended."""
        return self.latency.count + self.failed + sum(self.refused.values())

    @property
    def throughput(self) -> float:
        return self.requests / self.seconds if self.seconds else 0.0

    def share(self, number: int) -> float:
        return number / self.counted if self.counted else float("nan")
