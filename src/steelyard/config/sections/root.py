"""The configuration as a whole: models with their replicas, and the gateway in front of them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import field

from ...addresses import Address, listen_address, replica_address
from ...core.errors import OptionError
from ...core.options import HedgeOptions, OutlierDetectionOptions, PoolOptions, RetryOptions
from ...core.policies import POLICIES
from ...documents import Seconds
from ...protocols import DIALECTS, find_dialect
from .base import (
    CLASS_PATH_SCHEMA,
    AccessLogConfig,
    Count,
    HedgeConfig,
    LimitsConfig,
    Natural,
    OutlierDetectionConfig,
    ReplicaTlsConfig,
    RetryConfig,
    Section,
    TenantConfig,
    TimeoutsConfig,
    TlsConfig,
    Weight,
    described,
)
from .discovery import DiscoveryConfig
from .health import AdminConfig, HealthConfig, LoadMetricsConfig
from .memory import DeviceConfig, MemoryConfig, PlacementConfig
from .observability import DecisionLogConfig, HistoryConfig, SloConfig, TracingConfig
from .runtime import RuntimeConfig
from .scaling import AutoscaleConfig

ANY_MODEL = "*"  # takes every name

DEFAULT_QUEUE_TIMEOUT_SECONDS = 30.0

Workers = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Concurrency = Count | Literal["auto", "unlimited"]
_DIALECT_NAMES = ", ".join(f"`{name}`" for name in DIALECTS)


def default_policy(dialect: str) -> str:
    """Of models with this dialect."""
    try:
        generates_text = bool(dialect) and find_dialect(dialect).generates_text
    except OptionError:
        generates_text = False  # the checks say what is wrong with it
    return "prefix_work" if generates_text else "least_work"


class ReplicaConfig(Section, frozen=True):
    """A server that runs the model. Its URL alone may stand for it."""

    __shorthand__ = "url"

    url: Annotated[
        str, described("`http://host:port`, `https://host`, `unix:/path`", examples=["http://10.0.0.1:8000"])
    ]
    id: Annotated[str, described("what it is called; empty: host and port")] = ""
    weight: Annotated[Weight, described("its size against the other replicas of the model")] = 1.0
    zone: Annotated[str, described("where it stands")] = ""
    device: Annotated[str, described("what it runs on, a name under `devices`")] = ""
    ready: Annotated[str, described("path of its readiness probe, if not the one of `health`")] = ""

    @property
    def name(self) -> str:
        return self.id or str(replica_address(self.url))


class ModelConfig(Section, frozen=True):
    """A model and the replicas that serve it."""

    __renamed__: ClassVar[dict[str, str]] = PoolOptions.__renamed__ | {"load": "load_metrics"}

    replicas: Annotated[tuple[ReplicaConfig, ...], described("the servers that run it")] = ()
    dialect: Annotated[
        str,
        described(
            f"{_DIALECT_NAMES}, or `package.module:Class`; empty: by each request's path",
            anyOf=[{"enum": ["", *DIALECTS]}, CLASS_PATH_SCHEMA],
        ),
    ] = ""
    paths: Annotated[tuple[str, ...], described("paths of this model and all below", examples=[["/resnet"]])] = ()
    policy: Annotated[
        str,
        described(
            "how a replica is chosen: a name of `steelyard policies`, or `package.module:Class`; empty: `prefix_work` "
            "for `openai` and dialects like it, else `least_work`",
            anyOf=[{"enum": ["", *POLICIES]}, CLASS_PATH_SCHEMA],
        ),
    ] = ""
    policy_options: Annotated[dict[str, Any], described("see `steelyard policies NAME`")] = field(default_factory=dict)
    concurrency: Annotated[Concurrency, described("requests at a time on a replica, or `auto`")] = "unlimited"
    max_queue: Annotated[Natural, described("requests that may wait")] = 1024
    queue_timeout: Annotated[
        Seconds | None,
        described("longest wait of a request without a deadline; unset: 30s, or as long as a start takes"),
    ] = None
    wait_for_ready: Annotated[bool, described("wait, not refuse, while no replica is ready")] = False
    restart_grace: Annotated[Seconds, described("wait for the last replica to restart; 0: refuse at once")] = Seconds(5)
    cache_salt: Annotated[
        Literal["none", "tenant"], described("whose prefix caches a request may share: everybody's, or its tenant's")
    ] = "none"
    slow_start: Annotated[Seconds, described("time over which a newly ready replica takes up its weight")] = Seconds(10)
    warm_keys: Annotated[Natural, described("sessions or prefixes that a replica keeps warm; 0: not tracked")] = 0
    evaluation_interval: Annotated[Seconds, described("time between reviews of the pool")] = Seconds(1)
    timeout: Annotated[Seconds | None, described("time to the first byte, for requests that name no deadline")] = None
    idempotent: Annotated[bool | None, described("may a request run twice? unset: as the dialect says")] = None
    outlier_detection: Annotated[OutlierDetectionConfig, described("when a failing or slow replica is ejected")] = (
        OutlierDetectionConfig()
    )
    retry: Annotated[RetryConfig, described("a failed request, sent again to another replica")] = RetryConfig()
    hedge: Annotated[HedgeConfig, described("a second attempt elsewhere while the first still runs")] = HedgeConfig()
    slo: Annotated[SloConfig | None, described("service level objectives")] = None
    health: Annotated[HealthConfig, described("how to ask whether a replica is ready")] = HealthConfig()
    load_metrics: Annotated[LoadMetricsConfig, described("the load as replicas report it")] = LoadMetricsConfig()
    discovery: Annotated[tuple[DiscoveryConfig, ...], described("where more replicas are found")] = ()
    memory: Annotated[MemoryConfig, described("what it needs of the `device` its replicas run on")] = MemoryConfig()
    placement: Annotated[PlacementConfig | None, described("loaded on demand, on servers that can hold it")] = None
    runtime: Annotated[RuntimeConfig | None, described("starts replicas, besides those of `replicas`")] = None
    autoscale: Annotated[AutoscaleConfig | None, described("number of replicas, by load")] = None
    tls: Annotated[ReplicaTlsConfig, described("TLS to replicas with https URLs")] = ReplicaTlsConfig()

    def __post_init__(self) -> None:
        if not self.policy:
            msgspec.structs.force_setattr(self, "policy", default_policy(self.dialect))

    @property
    def starts_on_demand(self) -> bool:
        """May a request that finds no replica wait for one?"""
        return self.placement is not None or self.runtime is not None

    @property
    def max_start_wait(self) -> float:
        """Seconds that a request may wait for a start or a load; 0.0: `queue_timeout`."""
        if self.queue_timeout is not None:
            return 0.0
        started = self.runtime.start_timeout if self.runtime is not None else 0.0
        loaded = self.placement.load_timeout if self.placement is not None else 0.0
        return float(max(started, loaded))

    def pool_options(self) -> PoolOptions:
        return PoolOptions(
            concurrency=self.concurrency,
            max_queue=self.max_queue,
            queue_timeout=DEFAULT_QUEUE_TIMEOUT_SECONDS if self.queue_timeout is None else self.queue_timeout,
            start_wait=self.max_start_wait,
            restart_grace=self.restart_grace,
            wait_for_ready=self.wait_for_ready or self.starts_on_demand,
            slow_start=self.slow_start,
            warm_keys=self.warm_keys,
            evaluation_interval=self.evaluation_interval,
            outlier_detection=OutlierDetectionOptions(**msgspec.structs.asdict(self.outlier_detection)),
            retry=RetryOptions(**msgspec.structs.asdict(self.retry)),
            hedge=HedgeOptions(**msgspec.structs.asdict(self.hedge)),
        )


class Config(Section, frozen=True):
    """The configuration of a gateway."""

    __renamed__: ClassVar[dict[str, str]] = {"trusted": "trusted_proxies", "decisions": "decision_log"}

    models: Annotated[dict[str, ModelConfig], described("the models by name; `*` takes every other name")]
    name: Annotated[str, described("identity across restarts, to find what was started; empty: first `listen`")] = ""
    listen: Annotated[
        str | tuple[str, ...],
        described(
            "`host:port`, `[v6]:port`, `:port` (all addresses) or `unix:/path`; one, or a list",
            example="127.0.0.1:8080",
        ),
    ] = "127.0.0.1:8080"
    workers: Annotated[Workers, described("processes that forward requests")] = 1
    tls: Annotated[TlsConfig | None, described("TLS for clients")] = None
    trusted_proxies: Annotated[
        tuple[str, ...],
        described("networks of proxies whose forwarded headers and tenants count", examples=[["10.0.0.0/8"]]),
    ] = ()
    tenant_header: Annotated[str, described("request header that names the tenant, for fair queueing")] = ""
    tenants: Annotated[dict[str, TenantConfig], described("clients and their rights")] = field(default_factory=dict)
    limits: Annotated[LimitsConfig, described("what a client may ask of the gateway")] = LimitsConfig()
    timeouts: Annotated[TimeoutsConfig, described("how long the gateway waits")] = TimeoutsConfig()
    access_log: Annotated[AccessLogConfig | None, described("a line for each request")] = None
    admin: Annotated[AdminConfig, described("the admin API")] = AdminConfig()
    history: Annotated[HistoryConfig, described("SLO history, kept over restarts")] = HistoryConfig()
    tracing: Annotated[TracingConfig | None, described("spans of requests for OpenTelemetry")] = None
    decision_log: Annotated[DecisionLogConfig | None, described("why requests went where they went")] = None
    devices: Annotated[dict[str, DeviceConfig], described("where replicas run, by name")] = field(default_factory=dict)

    @property
    def listen_texts(self) -> tuple[str, ...]:
        return (self.listen,) if isinstance(self.listen, str) else self.listen

    @property
    def listen_addresses(self) -> tuple[Address, ...]:
        return tuple(map(listen_address, self.listen_texts))
