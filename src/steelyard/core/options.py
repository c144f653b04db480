"""How one model is to be balanced. Every number has a default that is safe; every check names the option.

`__renamed__` has the names of earlier versions: configurations are told the new one, decision logs are still read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from .plugins import require
from .request import INFINITY

Concurrency = int | Literal["auto", "unlimited"]


@dataclass(frozen=True, slots=True)
class OutlierDetectionOptions:
    """When a replica that answers probes is taken out for how it treats real requests."""

    __renamed__: ClassVar[dict[str, str]] = {
        "consecutive": "consecutive_failures",
        "deviations": "stdev_factor",
        "margin": "min_rate_gap",
        "least_replicas": "min_replicas",
        "least_requests": "min_requests",
        "slow": "slow_factor",
        "slow_for": "slow_duration",
        "seconds": "base_ejection_time",
        "longest": "max_ejection_time",
        "most": "max_ejected_share",
        "panic": "panic_threshold",
    }

    enabled: bool = True
    consecutive_failures: int = 5  # failures in a row
    stdev_factor: float = 1.9  # success rate this many σ under the mean…
    min_rate_gap: float = 0.1  # …and this much under it, so that tiny differences eject no replica
    min_replicas: int = 5
    min_requests: int = 20
    slow_factor: float = 3.0  # times slower than it usually is itself…
    slow_duration: float = 10.0  # …for this long
    base_ejection_time: float = 30.0  # × times ejected
    max_ejection_time: float = 300.0
    max_ejected_share: float = 0.1  # of the pool by the statistical rules; at least one
    panic_threshold: float = 0.5  # fewer healthy than this: use ejected ones too rather than overload the rest

    def __post_init__(self) -> None:
        require(
            self.consecutive_failures >= 1,
            "outlier_detection.consecutive_failures",
            "at least 1",
            self.consecutive_failures,
        )
        require(
            0 <= self.max_ejected_share <= 1,
            "outlier_detection.max_ejected_share",
            "a share from 0 to 1",
            self.max_ejected_share,
        )
        require(
            0 <= self.panic_threshold <= 1,
            "outlier_detection.panic_threshold",
            "a share from 0 to 1",
            self.panic_threshold,
        )
        require(self.slow_factor > 1, "outlier_detection.slow_factor", "more than 1", self.slow_factor)
        require(
            0 < self.base_ejection_time <= self.max_ejection_time,
            "outlier_detection.base_ejection_time",
            "positive, at most outlier_detection.max_ejection_time",
            self.base_ejection_time,
        )


@dataclass(frozen=True, slots=True)
class RetryOptions:
    __renamed__: ClassVar[dict[str, str]] = {
        "attempts": "max_attempts",
        "reserve": "initial_tokens",
        "saved": "max_tokens",
    }

    max_attempts: int = 3  # in all
    budget: float = 0.2  # retries per request, so a failing pool sees at most 1.2 attempts per request
    initial_tokens: float = 3.0  # retries in hand at the start
    max_tokens: float = 50.0  # most that may be saved up

    def __post_init__(self) -> None:
        require(self.max_attempts >= 1, "retry.max_attempts", "at least 1", self.max_attempts)
        require(0 <= self.budget <= 1, "retry.budget", "a share from 0 to 1", self.budget)
        require(
            0 <= self.initial_tokens <= self.max_tokens,
            "retry.initial_tokens",
            "from 0 to retry.max_tokens",
            self.initial_tokens,
        )


@dataclass(frozen=True, slots=True)
class HedgeOptions:
    """A second attempt elsewhere while the first still runs; the loser is cancelled."""

    enabled: bool = False
    quantile: float = 0.95  # of observed/predicted: hedge when a request is older than this
    budget: float = 0.02  # of the work done

    def __post_init__(self) -> None:
        require(0 < self.quantile < 1, "hedge.quantile", "between 0 and 1", self.quantile)
        require(0 < self.budget <= 1, "hedge.budget", "a share above 0, at most 1", self.budget)


@dataclass(frozen=True, slots=True)
class PoolOptions:
    __renamed__: ClassVar[dict[str, str]] = {
        "ejection": "outlier_detection",
        "hold": "wait_for_ready",
        "interval": "evaluation_interval",
        "max_wait": "queue_timeout",
        "queue": "max_queue",
    }

    concurrency: Concurrency = "unlimited"  # requests a replica takes at once; the rest wait here
    max_queue: int = 1024  # requests that may wait
    queue_timeout: float = 30.0  # seconds a request without a deadline may wait
    start_wait: float = 0.0  # seconds, if more, while none is ready and one is being started
    wait_for_ready: bool = False  # wait (not refuse) while no replica is ready
    restart_grace: float = 0.0  # else: seconds to wait after the last ready replica was lost, as it may only restart
    slow_start: float = 10.0  # seconds over which a newly ready replica takes up its weight
    warm_keys: int = 0  # keys (sessions, prefixes, adapters) a replica is believed to keep warm; 0: not tracked
    evaluation_interval: float = 1.0  # seconds between looks at the pool as a whole
    outlier_detection: OutlierDetectionOptions = field(default_factory=OutlierDetectionOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    hedge: HedgeOptions = field(default_factory=HedgeOptions)

    def __post_init__(self) -> None:
        number = isinstance(self.concurrency, int) and not isinstance(self.concurrency, bool)
        ok = self.concurrency in ("auto", "unlimited") or (number and int(self.concurrency) >= 1)
        require(ok, "concurrency", "a whole number from 1, 'auto' or 'unlimited'", self.concurrency)
        require(self.max_queue >= 0, "max_queue", "0 or more", self.max_queue)
        require(0 < self.queue_timeout < INFINITY, "queue_timeout", "a positive number of seconds", self.queue_timeout)
        require(self.start_wait >= 0, "start_wait", "0 or more seconds", self.start_wait)
        require(self.restart_grace >= 0, "restart_grace", "0 or more seconds", self.restart_grace)
        require(self.slow_start >= 0, "slow_start", "0 or more seconds", self.slow_start)
        require(
            self.evaluation_interval > 0,
            "evaluation_interval",
            "a positive number of seconds",
            self.evaluation_interval,
        )
        require(self.warm_keys >= 0, "warm_keys", "0 or more", self.warm_keys)


def current_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a pool that an earlier version wrote, by their names of this one."""
    found = _renamed(options, PoolOptions.__renamed__)
    for name, kind in (("outlier_detection", OutlierDetectionOptions), ("retry", RetryOptions)):
        if name in found:
            found[name] = _renamed(found[name], kind.__renamed__)
    return found


def _renamed(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in options.items()}
