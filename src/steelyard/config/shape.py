"""The configuration as a whole: models with their replicas, and the gateway in front of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ..addresses import Address, listen_address, replica_address
from ..core.options import EjectionOptions, HedgeOptions, PoolOptions, RetryOptions
from ..core.policies import POLICIES
from ..documents import Seconds
from ..protocols import DIALECTS
from .memory import Device, Memory, Placement
from .observing import DecisionLog, History, Slo, Tracing
from .parts import (
    OWN,
    AccessLog,
    Count,
    Ejection,
    Hedge,
    Limits,
    Natural,
    Part,
    ReplicaTls,
    Retry,
    Timeouts,
    Tls,
    Weight,
    about,
)
from .scaling import Autoscale, Runtime
from .tenants import Tenant
from .watching import Admin, Discovery, Health, Load

ANY = "*"  # the model that takes every name: what `serve --replica` without a model makes

DEFAULT_WAIT = 30.0  # seconds: `max_wait` of a model that does not say

Workers = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Concurrency = Count | Literal["auto", "unlimited"]
_SPOKEN = ", ".join(f"`{name}`" for name in DIALECTS)


class ReplicaConfig(Part, frozen=True):
    """A server that runs the model. Its URL alone may stand for it."""

    __shorthand__ = "url"

    url: Annotated[str, about("`http://host:port`, `https://host` or `unix:/path`", examples=["http://10.0.0.1:8000"])]
    id: Annotated[str, about("what it is called; empty: host and port")] = ""
    weight: Annotated[Weight, about("its size against the other replicas of the model")] = 1.0
    zone: Annotated[str, about("where it stands")] = ""
    device: Annotated[str, about("what it runs on, a name under `devices`")] = ""
    ready: Annotated[str, about("path of its readiness probe, if it is another than the model's `health` says")] = ""

    @property
    def name(self) -> str:
        return self.id or str(replica_address(self.url))


class ModelConfig(Part, frozen=True):
    """A model and the replicas that serve it."""

    replicas: Annotated[tuple[ReplicaConfig, ...], about("the servers that run it")] = ()
    dialect: Annotated[
        str,
        about(
            f"what it speaks: {_SPOKEN}, or `package.module:Class`; empty: told by each request's path",
            anyOf=[{"enum": ["", *DIALECTS]}, OWN],
        ),
    ] = ""
    paths: Annotated[
        tuple[str, ...], about("requests to these paths, and below them, are for this model", examples=[["/resnet"]])
    ] = ()
    policy: Annotated[
        str,
        about(
            "who gets a request: a name of `steelyard policies`, or `package.module:Class`",
            anyOf=[{"enum": list(POLICIES)}, OWN],
        ),
    ] = "least_work"
    policy_options: Annotated[dict[str, Any], about("options of the policy; `steelyard policies NAME` lists them")] = (
        msgspec.field(default_factory=dict)
    )
    concurrency: Annotated[
        Concurrency, about("requests a replica takes at once, the rest wait here: a number, `auto` or `unlimited`")
    ] = "unlimited"
    queue: Annotated[Natural, about("requests that may wait")] = 1024
    max_wait: Annotated[
        Seconds | None,
        about("time that a request without a deadline may wait; without it 30s, or as long as a start is under way"),
    ] = None
    hold: Annotated[bool, about("wait, not refuse, while no replica is ready")] = False
    restart_grace: Annotated[
        Seconds,
        about("time for which requests wait after the last ready replica was lost, as it may only restart; 0: refused"),
    ] = Seconds(5)
    slow_start: Annotated[Seconds, about("time over which a newly ready replica takes up its weight")] = Seconds(10)
    warm_keys: Annotated[
        Natural, about("sessions or prefixes that a replica is believed to keep warm; 0: not tracked")
    ] = 0
    interval: Annotated[Seconds, about("time between looks at the replicas as a whole")] = Seconds(1)
    timeout: Annotated[
        Seconds | None, about("time in which the answer must begin, of a request that names no deadline")
    ] = None
    idempotent: Annotated[
        bool | None,
        about("whether a request that a replica may have begun may be sent again; without it, the dialect says"),
    ] = None
    ejection: Annotated[Ejection, about("when a replica is taken out for how it treats real requests")] = Ejection()
    retry: Annotated[Retry, about("a failed request, sent again to another replica")] = Retry()
    hedge: Annotated[Hedge, about("a second attempt elsewhere while the first still runs")] = Hedge()
    slo: Annotated[Slo | None, about("what is promised")] = None
    health: Annotated[Health, about("how to ask whether a replica is ready")] = Health()
    load: Annotated[Load, about("what a replica itself says of its load")] = Load()
    discovery: Annotated[tuple[Discovery, ...], about("where more replicas are found")] = ()
    memory: Annotated[Memory, about("what it needs of the `device` its replicas run on")] = Memory()
    placement: Annotated[
        Placement | None, about("loaded and unloaded on demand: its replicas are servers that can hold it")
    ] = None
    runtime: Annotated[Runtime | None, about("who starts its replicas, besides those under `replicas`")] = None
    autoscale: Annotated[Autoscale | None, about("how many replicas, by what is asked of them")] = None
    tls: Annotated[ReplicaTls, about("TLS to replicas with https URLs")] = ReplicaTls()

    @property
    def starts_on_demand(self) -> bool:
        """May a request that finds no replica wait for one?"""
        return self.placement is not None or self.runtime is not None

    @property
    def start_wait(self) -> float:
        """Seconds that a request may wait for a replica that is being started or loaded; 0.0: `max_wait`."""
        if self.max_wait is not None:
            return 0.0
        started = self.runtime.start_timeout if self.runtime is not None else 0.0
        loaded = self.placement.timeout if self.placement is not None else 0.0
        return float(max(started, loaded))

    def pool_options(self) -> PoolOptions:
        return PoolOptions(
            concurrency=self.concurrency,
            queue=self.queue,
            max_wait=DEFAULT_WAIT if self.max_wait is None else self.max_wait,
            start_wait=self.start_wait,
            restart_grace=self.restart_grace,
            hold=self.hold or self.starts_on_demand,
            slow_start=self.slow_start,
            warm_keys=self.warm_keys,
            interval=self.interval,
            ejection=EjectionOptions(**msgspec.structs.asdict(self.ejection)),
            retry=RetryOptions(**msgspec.structs.asdict(self.retry)),
            hedge=HedgeOptions(**msgspec.structs.asdict(self.hedge)),
        )


class Config(Part, frozen=True):
    """The configuration of a gateway."""

    models: Annotated[
        dict[str, ModelConfig], about("the models by the name that requests give; `*` takes every other name")
    ]
    name: Annotated[
        str, about("by this a new gateway finds what a killed one of that name had started; empty: its first `listen`")
    ] = ""
    listen: Annotated[
        str | tuple[str, ...],
        about("`host:port`, `[v6]:port`, `:port` (all addresses) or `unix:/path`; one, or a list"),
    ] = "127.0.0.1:8080"
    workers: Annotated[Workers, about("processes that forward requests")] = 1
    tls: Annotated[Tls | None, about("TLS for clients")] = None
    trusted: Annotated[
        tuple[str, ...],
        about("networks of proxies that are believed: forwarded headers, tenants", examples=[["10.0.0.0/8"]]),
    ] = ()
    tenant_header: Annotated[
        str, about("request header that names the tenant, for fair shares of the waiting line")
    ] = ""
    tenants: Annotated[dict[str, Tenant], about("who the clients are, and what they may ask for, by name")] = (
        msgspec.field(default_factory=dict)
    )
    limits: Annotated[Limits, about("what a client may ask of the gateway")] = Limits()
    timeouts: Annotated[Timeouts, about("how long the gateway waits")] = Timeouts()
    access_log: Annotated[AccessLog | None, about("a line for each request")] = None
    admin: Annotated[Admin, about("the admin API")] = Admin()
    history: Annotated[History, about("how promises were kept, over restarts")] = History()
    tracing: Annotated[Tracing | None, about("spans of requests for OpenTelemetry")] = None
    decisions: Annotated[DecisionLog | None, about("why requests went where they went")] = None
    devices: Annotated[dict[str, Device], about("what replicas run on, by name")] = msgspec.field(default_factory=dict)

    @property
    def listens(self) -> tuple[str, ...]:
        return (self.listen,) if isinstance(self.listen, str) else self.listen

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(map(listen_address, self.listens))
