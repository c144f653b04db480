"""How one model is to be balanced. Every number has a default that is safe; every check names the option."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .errors import OptionError
from .request import INFINITY

Concurrency = int | Literal["auto", "unlimited"]


def _require(ok: bool, name: str, wanted: str, value: object) -> None:
    if not ok:
        raise OptionError(f"{name}: must be {wanted}, not {value!r}")


@dataclass(frozen=True, slots=True)
class EjectionOptions:
    """When a replica that answers probes is taken out for how it treats real requests."""

    enabled: bool = True
    consecutive_failures: int = 5  # failures in a row
    stdev_factor: float = 1.9  # success rate this many σ under the mean…
    min_rate_gap: float = 0.1  # …and this much under it, so that tiny differences eject nobody
    min_replicas: int = 5
    min_requests: int = 20
    slow_factor: float = 3.0  # times slower than it usually is itself…
    slow_duration: float = 10.0  # …for this long
    base_ejection_time: float = 30.0  # × times ejected
    max_ejection_time: float = 300.0
    max_ejected_share: float = 0.1  # of the pool by the statistical rules; at least one
    panic_threshold: float = 0.5  # fewer healthy than this: use ejected ones too rather than overload the rest

    def __post_init__(self) -> None:
        _require(self.consecutive_failures >= 1, "ejection.consecutive", "at least 1", self.consecutive_failures)
        _require(0 <= self.max_ejected_share <= 1, "ejection.most", "a share from 0 to 1", self.max_ejected_share)
        _require(0 <= self.panic_threshold <= 1, "ejection.panic", "a share from 0 to 1", self.panic_threshold)
        _require(self.slow_factor > 1, "ejection.slow", "more than 1", self.slow_factor)
        _require(
            0 < self.base_ejection_time <= self.max_ejection_time,
            "ejection.seconds",
            "positive, at most ejection.longest",
            self.base_ejection_time,
        )


@dataclass(frozen=True, slots=True)
class RetryOptions:
    max_attempts: int = 3  # in all
    budget: float = 0.2  # retries per request, so a failing pool sees at most 1.2 attempts per request
    initial_tokens: float = 3.0  # retries in hand at the start
    max_tokens: float = 50.0  # most that may be saved up

    def __post_init__(self) -> None:
        _require(self.max_attempts >= 1, "retry.attempts", "at least 1", self.max_attempts)
        _require(0 <= self.budget <= 1, "retry.budget", "a share from 0 to 1", self.budget)
        _require(
            0 <= self.initial_tokens <= self.max_tokens, "retry.reserve", "from 0 to retry.saved", self.initial_tokens
        )


@dataclass(frozen=True, slots=True)
class HedgeOptions:
    """A second attempt elsewhere while the first still runs; the loser is cancelled."""

    enabled: bool = False
    quantile: float = 0.95  # of observed/predicted: hedge when a request is older than this
    budget: float = 0.02  # of the work done

    def __post_init__(self) -> None:
        _require(0 < self.quantile < 1, "hedge.quantile", "between 0 and 1", self.quantile)
        _require(0 < self.budget <= 1, "hedge.budget", "a share above 0, at most 1", self.budget)


@dataclass(frozen=True, slots=True)
class PoolOptions:
    concurrency: Concurrency = "unlimited"  # requests a replica takes at once; the rest wait here
    max_queue: int = 1024  # requests that may wait
    queue_timeout: float = 30.0  # seconds a request without a deadline may wait
    start_wait: float = 0.0  # seconds, if more, while none is ready and one is being started
    wait_for_ready: bool = False  # wait (not refuse) while no replica is ready
    restart_grace: float = 0.0  # else: seconds to wait after the last ready replica was lost, as it may only restart
    slow_start: float = 10.0  # seconds over which a newly ready replica takes up its weight
    warm_keys: int = 0  # keys (sessions, prefixes, adapters) a replica is believed to keep warm; 0: not tracked
    interval: float = 1.0  # seconds between looks at the pool as a whole
    ejection: EjectionOptions = field(default_factory=EjectionOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    hedge: HedgeOptions = field(default_factory=HedgeOptions)

    def __post_init__(self) -> None:
        number = isinstance(self.concurrency, int) and not isinstance(self.concurrency, bool)
        ok = self.concurrency in ("auto", "unlimited") or (number and int(self.concurrency) >= 1)
        _require(ok, "concurrency", "a whole number from 1, 'auto' or 'unlimited'", self.concurrency)
        _require(self.max_queue >= 0, "queue", "0 or more", self.max_queue)
        _require(0 < self.queue_timeout < INFINITY, "max_wait", "a positive number of seconds", self.queue_timeout)
        _require(self.start_wait >= 0, "start_wait", "0 or more seconds", self.start_wait)
        _require(self.restart_grace >= 0, "restart_grace", "0 or more seconds", self.restart_grace)
        _require(self.slow_start >= 0, "slow_start", "0 or more seconds", self.slow_start)
        _require(self.interval > 0, "interval", "a positive number of seconds", self.interval)
        _require(self.warm_keys >= 0, "warm_keys", "0 or more", self.warm_keys)
