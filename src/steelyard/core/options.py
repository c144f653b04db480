"""How one model is balanced. `__renamed__`: names of earlier versions, for hints and for old decision logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from .plugins import require
from .request import INFINITY

Concurrency = int | Literal["auto", "unlimited"]


@dataclass(frozen=True, slots=True)
class OutlierDetectionOptions:
    """When a replica that answers probes is ejected for how it treats real requests."""

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
    panic_threshold: float = 0.5  # share of healthy ones below which ejected ones are used too

    def __post_init__(self) -> None:
        at = "outlier_detection."
        _check(self, at, "consecutive_failures", self.consecutive_failures >= 1, "at least 1")
        _check(self, at, "max_ejected_share", 0 <= self.max_ejected_share <= 1, "a share from 0 to 1")
        _check(self, at, "panic_threshold", 0 <= self.panic_threshold <= 1, "a share from 0 to 1")
        _check(self, at, "slow_factor", self.slow_factor > 1, "more than 1")
        fits = 0 < self.base_ejection_time <= self.max_ejection_time
        _check(self, at, "base_ejection_time", fits, "positive, at most outlier_detection.max_ejection_time")


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
        _check(self, "retry.", "max_attempts", self.max_attempts >= 1, "at least 1")
        _check(self, "retry.", "budget", 0 <= self.budget <= 1, "a share from 0 to 1")
        fits = 0 <= self.initial_tokens <= self.max_tokens
        _check(self, "retry.", "initial_tokens", fits, "from 0 to retry.max_tokens")


@dataclass(frozen=True, slots=True)
class HedgeOptions:
    """A second attempt elsewhere while the first still runs; the loser is cancelled."""

    enabled: bool = False
    quantile: float = 0.95  # of observed/predicted: hedge when a request is older than this
    budget: float = 0.02  # of the work done

    def __post_init__(self) -> None:
        _check(self, "hedge.", "quantile", 0 < self.quantile < 1, "between 0 and 1")
        _check(self, "hedge.", "budget", 0 < self.budget <= 1, "a share above 0, at most 1")


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
        _check(self, "", "concurrency", ok, "a whole number from 1, 'auto' or 'unlimited'")
        _check(self, "", "max_queue", self.max_queue >= 0, "0 or more")
        _check(self, "", "queue_timeout", 0 < self.queue_timeout < INFINITY, "a positive number of seconds")
        for name in ("start_wait", "restart_grace", "slow_start"):
            _check(self, "", name, getattr(self, name) >= 0, "0 or more seconds")
        _check(self, "", "evaluation_interval", self.evaluation_interval > 0, "a positive number of seconds")
        _check(self, "", "warm_keys", self.warm_keys >= 0, "0 or more")


def _check(options: object, section: str, name: str, ok: bool, wanted: str) -> None:
    require(ok, section + name, wanted, getattr(options, name))


def current_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Pool options that an earlier version wrote, by their present names."""
    found = _renamed(options, PoolOptions.__renamed__)
    for name, kind in (("outlier_detection", OutlierDetectionOptions), ("retry", RetryOptions)):
        if name in found:
            found[name] = _renamed(found[name], kind.__renamed__)
    return found


def _renamed(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in options.items()}
