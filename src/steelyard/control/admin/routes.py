"""All routes, in one table: the application and the OpenAPI document are both made of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..observability.views import DeviceView, FleetView, LiveHistoryView, LiveView, ModelView, ReplicaView, ScalingView
from .handlers import commands, queries
from .handlers.call import Handler
from .schemas import (
    Devices,
    Events,
    LeaseGranted,
    LeaseRequest,
    Log,
    LogQuery,
    ModelChanges,
    ModelMemoryList,
    Models,
    NewReplica,
    NoInput,
    ReloadResult,
    ReplicaChanges,
    Replicas,
    RequestBody,
    Scalings,
    Slos,
    Status,
    Withdrawal,
)


class Route(NamedTuple):
    method: str
    path: str
    handler: Handler
    about: str
    returns: type[msgspec.Struct] | type[str] | None  # None: nothing, 204; str: text as `metrics.TEXT` says
    accepts: type[RequestBody] = NoInput
    query: type[RequestBody] = NoInput
    status: int = 200
    streams: bool = False  # Server-Sent Events: first what it gives, then more

    @property
    def name(self) -> str:
        return self.handler.__name__


_MODEL = "/v1/models/{model}"
_REPLICAS = f"{_MODEL}/replicas"
_REPLICA = f"{_REPLICAS}/{{replica}}"
_LEASE = f"{_MODEL}/leases/{{replica}}"

ROUTES = (
    Route("GET", "/healthz", queries.healthz, "Does Steelyard itself work?", Status),
    Route("GET", "/readyz", queries.readyz, "Should it get traffic now?", Status),
    Route("GET", "/v1/fleet", queries.fleet, "Everything, with every number the balancer uses.", FleetView),
    Route("GET", "/metrics", queries.metrics, "The fleet in numbers, in Prometheus' text form.", str),
    Route("GET", "/v1/live", queries.live, "The fleet, followed: once a second.", LiveHistoryView, streams=True),
    Route("GET", "/v1/live/latest", queries.live_latest, "The same once: what happens this second.", LiveView),
    Route("GET", "/v1/slo", queries.slo, "SLOs: attainment, error budgets and burn rates.", Slos),
    Route("GET", "/v1/events", queries.events, "What happened, the latest last.", Events),
    Route("GET", "/v1/models", queries.models, "All models.", Models),
    Route("GET", _MODEL, queries.model, "One model.", ModelView),
    Route("PATCH", _MODEL, commands.change_model, "Change its policy or concurrency.", ModelView, ModelChanges),
    Route("GET", _REPLICAS, queries.replicas, "The replicas of a model.", Replicas),
    Route(
        "POST", _REPLICAS, commands.add_replica, "Add a replica, until a restart.", ReplicaView, NewReplica, status=201
    ),
    Route("GET", _REPLICA, queries.replica, "One replica.", ReplicaView),
    Route("PATCH", _REPLICA, commands.change_replica, "Change its weight.", ReplicaView, ReplicaChanges),
    Route("DELETE", _REPLICA, commands.remove_replica, "Remove one that was added or registered.", None, status=204),
    Route("POST", f"{_REPLICA}/drain", commands.drain, "Send it nothing new; what runs is finished.", ReplicaView),
    Route("POST", f"{_REPLICA}/undrain", commands.undrain, "Send it requests again when it is ready.", ReplicaView),
    Route("POST", f"{_REPLICA}/load", commands.load, "Load the model there now.", ReplicaView),
    Route("POST", f"{_REPLICA}/unload", commands.unload, "Unload it there when what runs has ended.", ReplicaView),
    Route("GET", f"{_REPLICA}/log", queries.replica_log, "What one that we started printed last.", Log, query=LogQuery),
    Route("PUT", _LEASE, commands.renew_lease, "A replica registers, or renews.", LeaseGranted, LeaseRequest),
    Route(
        "DELETE", _LEASE, commands.withdraw_lease, "A registered replica leaves.", None, query=Withdrawal, status=204
    ),
    Route("GET", "/v1/scaling", queries.scaling, "How many replicas models have, should have, and why.", Scalings),
    Route("GET", f"{_MODEL}/scaling", queries.model_scaling, "The same of one model, with its history.", ScalingView),
    Route("GET", "/v1/devices", queries.devices, "All devices: who has what of their memory.", Devices),
    Route("GET", "/v1/devices/{device}", queries.device, "One device.", DeviceView),
    Route(
        "GET",
        "/v1/model-memory",
        queries.model_memory,
        "What each model needs of memory, declared and learned.",
        ModelMemoryList,
    ),
    Route("POST", "/v1/reload", commands.reload, "Read the configuration again.", ReloadResult),
)
OPENAPI_PATH = "/openapi.json"
MOVED_PATHS = {"/v1/pulse": "/v1/live/latest", "/v1/sizes": "/v1/model-memory"}  # old: new
