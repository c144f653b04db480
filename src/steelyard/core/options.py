"""How one model is to be balanced. Every number has a default that is safe; every check names the option."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .plugins import require
from .request import INFINITY

Concurrency = int | Literal["auto", "unlimited"]


@dataclass(frozen=True, slots=True)
class EjectionOptions:
    """When a replica that answers probes is taken out for how it treats real requests."""

    enabled: bool = True
    consecutive: int = 5  # failures in a row
    deviations: float = 1.9  # success rate this many σ under the mean…
    margin: float = 0.1  # …and this much under it, so that tiny differences eject no replica
    least_replicas: int = 5
    least_requests: int = 20
    slow: float = 3.0  # times slower than it usually is itself…
    slow_for: float = 10.0  # …for this long
    seconds: float = 30.0  # × times ejected
    longest: float = 300.0
    most: float = 0.1  # of the pool by the statistical rules; at least one
    panic: float = 0.5  # fewer healthy than this: use ejected ones too rather than overload the rest

    def __post_init__(self) -> None:
        require(self.consecutive >= 1, "ejection.consecutive", "at least 1", self.consecutive)
        require(0 <= self.most <= 1, "ejection.most", "a share from 0 to 1", self.most)
        require(0 <= self.panic <= 1, "ejection.panic", "a share from 0 to 1", self.panic)
        require(self.slow > 1, "ejection.slow", "more than 1", self.slow)
        require(
            0 < self.seconds <= self.longest,
            "ejection.seconds",
            "positive, at most ejection.longest",
            self.seconds,
        )


@dataclass(frozen=True, slots=True)
class RetryOptions:
    attempts: int = 3  # in all
    budget: float = 0.2  # retries per request, so a failing pool sees at most 1.2 attempts per request
    reserve: float = 3.0  # retries in hand at the start
    saved: float = 50.0  # most that may be saved up

    def __post_init__(self) -> None:
        require(self.attempts >= 1, "retry.attempts", "at least 1", self.attempts)
        require(0 <= self.budget <= 1, "retry.budget", "a share from 0 to 1", self.budget)
        require(0 <= self.reserve <= self.saved, "retry.reserve", "from 0 to retry.saved", self.reserve)


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
    concurrency: Concurrency = "unlimited"  # requests a replica takes at once; the rest wait here
    queue: int = 1024  # requests that may wait
    max_wait: float = 30.0  # seconds a request without a deadline may wait
    start_wait: float = 0.0  # seconds, if more, while none is ready and one is being started
    hold: bool = False  # wait (not refuse) while no replica is ready
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
        require(ok, "concurrency", "a whole number from 1, 'auto' or 'unlimited'", self.concurrency)
        require(self.queue >= 0, "queue", "0 or more", self.queue)
        require(0 < self.max_wait < INFINITY, "max_wait", "a positive number of seconds", self.max_wait)
        require(self.start_wait >= 0, "start_wait", "0 or more seconds", self.start_wait)
        require(self.restart_grace >= 0, "restart_grace", "0 or more seconds", self.restart_grace)
        require(self.slow_start >= 0, "slow_start", "0 or more seconds", self.slow_start)
        require(self.interval > 0, "interval", "a positive number of seconds", self.interval)
        require(self.warm_keys >= 0, "warm_keys", "0 or more", self.warm_keys)
