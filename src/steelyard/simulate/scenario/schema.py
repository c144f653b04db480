"""What to simulate, as a YAML document; docs/simulator.md explains each field."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from ...core.options import HedgeOptions, OutlierDetectionOptions, PoolOptions, RetryOptions
from ...documents import Seconds
from ..llm.model import TYPICAL_MIX, EngineModel, find_engine
from .conversations import Conversations
from .dynamics import Autoscale, TrafficShape, check

DEFAULT_POLICIES = ("round_robin", "least_connections", "least_work@auto")


class Batching(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """n requests at once each take 1 + slope × (n - 1) times as long."""

    slope: float = 0.05

    def __post_init__(self) -> None:
        check(self.slope >= 0, "slope", "0 or more")

    def __call__(self, n: int) -> float:
        return 1.0 + self.slope * (n - 1)


class ReplicaGroup(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    count: int = 1
    speed: float = 1.0
    slots: int = 1
    weight: float = 1.0
    batching: Batching | None = None
    prefix_blocks: int = 0  # blocks of context it keeps; 0: no cache
    models: int = 0  # models it holds at once; 0: all
    load_time: Seconds = Seconds(0.0)  # to bring in one it does not hold
    engine: str | EngineModel | None = None  # a batching engine for text: a preset, or its coefficients

    def __post_init__(self) -> None:
        check(self.count >= 1, "count", "at least 1")
        check(self.speed > 0, "speed", "positive")
        check(self.slots >= 1, "slots", "at least 1")
        check(self.weight > 0, "weight", "positive")
        check(self.prefix_blocks >= 0, "prefix_blocks", "0 or more")
        check(self.models >= 0, "models", "0 or more")
        if self.engine is not None:
            find_engine(self.engine)
            given = {"slots": self.slots != 1, "batching": self.batching is not None}
            given |= {"prefix_blocks": self.prefix_blocks != 0, "models": self.models != 0}
            for name, there in given.items():
                check(not there, name, "left out beside `engine`, which says it")

    @property
    def engine_name(self) -> str:
        return self.engine if isinstance(self.engine, str) else "of its own coefficients"

    @property
    def capacity(self) -> float:
        """Seconds of work done per second when full; of engines, typical requests."""
        if self.engine is not None:
            return self.count * self.speed * find_engine(self.engine).requests_per_second(TYPICAL_MIX)
        slow = self.batching(self.slots) if self.batching is not None else 1.0
        return self.count * self.speed * self.slots / slow


class Sizes(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Seconds of work per request on a replica of speed 1."""

    kind: Literal["constant", "exponential", "lognormal", "pareto"] = "exponential"
    mean: Seconds = Seconds(0.05)
    cv: float = 2.0  # lognormal: standard deviation / mean
    alpha: float = 1.5  # pareto: tail exponent
    spread: float = 1000.0  # pareto: largest / smallest

    def __post_init__(self) -> None:
        check(self.mean > 0, "mean", "positive")
        check(self.cv > 0, "cv", "positive")
        check(self.alpha > 0 and self.alpha != 1, "alpha", "positive and not 1")
        check(self.spread > 1, "spread", "more than 1")


class Arrivals(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    kind: Literal["poisson", "gamma", "regular"] = "poisson"
    cv: float = 1.0  # gamma: of the gaps

    def __post_init__(self) -> None:
        check(self.cv > 0, "cv", "positive")


class Trace(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A recorded workload. Loads other than 0 stretch or squeeze its time."""

    __renamed__: ClassVar[dict[str, str]] = {"kinds": "reveal_kind"}

    file: str  # a path, or `builtin:NAME`
    format: Literal["azure", "mooncake", "alibaba"] | None = None
    input: Seconds = Seconds(0.0002)  # per input token (azure, mooncake)
    output: Seconds = Seconds(0.03)  # per output token
    block_tokens: int = 512  # mooncake: tokens in a block of context
    reveal_kind: bool = True  # alibaba: tell the balancer the checkpoint


class ModelMix(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Several models over one fleet, their popularity 1 / rank^zipf."""

    count: int = 1
    zipf: float = 1.0

    def __post_init__(self) -> None:
        check(self.count >= 1, "count", "at least 1")


class Workload(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    sizes: Sizes = Sizes()
    features: float = 0.5  # share of the log variance of sizes that the balancer knows
    arrivals: Arrivals = Arrivals()
    deadline: Seconds | None = None  # each request's, after arrival
    tenants: dict[str, float] = {}  # share of the traffic by tenant
    models: ModelMix = ModelMix()
    shape: TrafficShape = TrafficShape()
    trace: Trace | None = None
    conversations: Conversations | None = None
    expected_hits: float = 0.0  # of engines: share of the prompt tokens that a load counts as cached

    def __post_init__(self) -> None:
        check(0 <= self.features <= 1, "features", "from 0 to 1")
        check(self.deadline is None or self.deadline > 0, "deadline", "positive")
        check(all(share > 0 for share in self.tenants.values()), "tenants", "positive shares")
        constant = self.shape.kind == "constant"
        check(self.trace is None or constant, "shape", "`constant` with a trace, which has its own")
        check(0 <= self.expected_hits < 1, "expected_hits", "from 0 to below 1")
        check(self.conversations is None or constant, "shape", "`constant` with `conversations`")
        check(self.conversations is None or self.trace is None, "trace", "left out beside `conversations`")


class Fault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    __renamed__: ClassVar[dict[str, str]] = {"lasts": "duration", "cold": "cold_start", "detect": "detection_delay"}

    kind: Literal["slow", "errors", "crash", "join"]
    replica: int = 0  # by position in the fleet
    at: Seconds = Seconds(10.0)
    duration: Seconds = Seconds(30.0)
    factor: float = 5.0  # slow: times slower
    cold_start: Seconds = Seconds(5.0)  # crash, join
    detection_delay: Seconds = Seconds(1.0)  # until probes have noticed a change

    def __post_init__(self) -> None:
        check(self.factor > 0, "factor", "positive")
        check(self.replica >= 0, "replica", "0 or more")


class Balancers(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Each hears of the others' load late."""

    count: int = 1
    signal_every: Seconds = Seconds(0.1)
    signal_delay: Seconds = Seconds(0.0)

    def __post_init__(self) -> None:
        check(self.count >= 1, "count", "at least 1")
        check(self.signal_every > 0, "signal_every", "positive")


class Balancing(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Options of all policies; `name@N` has its own concurrency."""

    __renamed__: ClassVar[dict[str, str]] = {
        "ejection": "outlier_detection",
        "max_wait": "queue_timeout",
        "queue": "max_queue",
    }

    concurrency: int | Literal["auto", "unlimited"] = "unlimited"
    max_queue: int = 100_000
    queue_timeout: Seconds = Seconds(3600.0)
    slow_start: Seconds = Seconds(10.0)
    outlier_detection: bool = True
    retries: bool = True
    hedging: bool = False

    def options(self, concurrency: int | Literal["auto", "unlimited"] | None, warm_keys: int) -> PoolOptions:
        return PoolOptions(
            concurrency=self.concurrency if concurrency is None else concurrency,
            max_queue=self.max_queue,
            queue_timeout=self.queue_timeout,
            slow_start=self.slow_start,
            warm_keys=warm_keys,
            outlier_detection=OutlierDetectionOptions(enabled=self.outlier_detection),
            retry=RetryOptions(max_attempts=3 if self.retries else 1),
            hedge=HedgeOptions(enabled=self.hedging),
        )


class StreamSlo(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Of streamed answers: both must hold."""

    first_byte: Seconds = Seconds(2.0)
    per_token: Seconds = Seconds(0.1)  # mean of each token after the first

    def __post_init__(self) -> None:
        check(self.first_byte > 0, "first_byte", "positive")
        check(self.per_token > 0, "per_token", "positive")


class Scenario(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str = "scenario"
    requests: int = 50_000  # per run; of a trace, at most
    seeds: int = 5
    loads: tuple[float, ...] = (0.7, 0.85, 0.95)  # of the fleet's capacity; 0: a trace as recorded
    warmup: float = 0.05  # share of the run left out of the figures
    fleet: tuple[ReplicaGroup, ...] = (ReplicaGroup(count=8),)
    workload: Workload = Workload()
    slo: Seconds | None = None
    stream_slo: StreamSlo = StreamSlo()  # of engines
    balancers: Balancers = Balancers()
    balancing: Balancing = Balancing()
    faults: tuple[Fault, ...] = ()
    policies: tuple[str, ...] = DEFAULT_POLICIES
    autoscale: Autoscale | None = None

    def __post_init__(self) -> None:
        check(self.requests >= 1, "requests", "at least 1")
        check(self.seeds >= 1, "seeds", "at least 1")
        check(bool(self.fleet), "fleet", "at least one group of replicas")
        check(bool(self.loads), "loads", "at least one load")
        highest = 100 if self.autoscale is None else 10_000
        check(all(0 <= load < highest for load in self.loads), "loads", "shares of the capacity, such as 0.85")
        check(self.workload.trace is not None or all(self.loads), "loads", "above 0 without a trace")
        check(0 <= self.warmup < 1, "warmup", "from 0 to below 1")
        check(bool(self.policies), "policies", "at least one policy")
        replicas = sum(group.count for group in self.fleet)
        for fault in self.faults:
            check(fault.replica < replicas, "faults", f"about replicas 0 to {replicas - 1}, not {fault.replica}")
        self._check_engines()
        if self.autoscale is not None:
            self._check_scaled()

    def _check_engines(self) -> None:
        engines = [group.engine is not None for group in self.fleet]
        check(all(engines) or not any(engines), "fleet", "of engines only, or without `engine`")
        if self.workload.conversations is not None:
            check(all(engines), "fleet", "of engines (`engine`) with `workload.conversations`")
        if any(engines):
            tokens = self.workload.conversations is not None or self.workload.trace is not None
            check(tokens, "workload", "`conversations` or a `trace` for engines")
            check(self.autoscale is None, "autoscale", "left out where the fleet has engines")

    def _check_scaled(self) -> None:
        one = len(self.fleet) == 1 and self.fleet[0].count == 1
        check(one, "fleet", "one group of one with `autoscale`: what a replica is")
        check(not self.fleet[0].models, "fleet", "without `models` where `autoscale` is")
        check(self.balancers.count == 1, "balancers", "one with `autoscale`")
        check(not self.faults, "faults", "none with `autoscale`")
        if self.policies is DEFAULT_POLICIES:
            msgspec.structs.force_setattr(self, "policies", (f"least_work@{self.fleet[0].slots}",))

    @property
    def capacity(self) -> float:
        return sum(group.capacity for group in self.fleet)

    @property
    def has_engines(self) -> bool:
        return self.fleet[0].engine is not None

    @property
    def groups(self) -> list[ReplicaGroup]:
        return [group for group in self.fleet for _ in range(group.count)]

    @property
    def scalers(self) -> tuple[str, ...]:
        return self.autoscale.scalers if self.autoscale is not None else ()
