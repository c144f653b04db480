"""All routes, in one table: the application and the OpenAPI document are both made of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..views import DeviceView, FleetView, LiveHistoryView, LiveView, ModelView, ReplicaView, ScalingView
from . import changing, showing
from .bodies import (
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
from .calls import Handler


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
    Route("GET", "/healthz", showing.healthz, "Does Steelyard itself work?", Status),
    Route("GET", "/readyz", showing.readyz, "Should it get traffic now?", Status),
    Route("GET", "/v1/fleet", showing.fleet, "Everything, with every number the balancer uses.", FleetView),
    Route("GET", "/metrics", showing.metrics, "The fleet in numbers, in Prometheus' text form.", str),
    Route("GET", "/v1/live", showing.live, "The fleet, followed: once a second.", LiveHistoryView, streams=True),
    Route("GET", "/v1/pulse", showing.live_latest, "The same once: what happens this second.", LiveView),
    Route("GET", "/v1/slo", showing.slo, "What is promised to users, and how it is kept.", Slos),
    Route("GET", "/v1/events", showing.events, "What happened, the latest last.", Events),
    Route("GET", "/v1/models", showing.models, "All models.", Models),
    Route("GET", _MODEL, showing.model, "One model.", ModelView),
    Route("PATCH", _MODEL, changing.change_model, "Change its policy or concurrency.", ModelView, ModelChanges),
    Route("GET", _REPLICAS, showing.replicas, "The replicas of a model.", Replicas),
    Route(
        "POST", _REPLICAS, changing.add_replica, "Add a replica, until a restart.", ReplicaView, NewReplica, status=201
    ),
    Route("GET", _REPLICA, showing.replica, "One replica.", ReplicaView),
    Route("PATCH", _REPLICA, changing.change_replica, "Change its weight.", ReplicaView, ReplicaChanges),
    Route("DELETE", _REPLICA, changing.remove_replica, "Remove one that was added or registered.", None, status=204),
    Route("POST", f"{_REPLICA}/drain", changing.drain, "Send it nothing new; what runs is finished.", ReplicaView),
    Route("POST", f"{_REPLICA}/undrain", changing.undrain, "Send it requests again when it is ready.", ReplicaView),
    Route("POST", f"{_REPLICA}/load", changing.load, "Load the model there now.", ReplicaView),
    Route("POST", f"{_REPLICA}/unload", changing.unload, "Unload it there when what runs has ended.", ReplicaView),
    Route("GET", f"{_REPLICA}/log", showing.replica_log, "What one that we started printed last.", Log, query=LogQuery),
    Route("PUT", _LEASE, changing.renew_lease, "A replica registers, or renews.", LeaseGranted, LeaseRequest),
    Route(
        "DELETE", _LEASE, changing.withdraw_lease, "A registered replica leaves.", None, query=Withdrawal, status=204
    ),
    Route("GET", "/v1/scaling", showing.scaling, "How many replicas models have, should have, and why.", Scalings),
    Route("GET", f"{_MODEL}/scaling", showing.model_scaling, "The same of one model, with its history.", ScalingView),
    Route("GET", "/v1/devices", showing.devices, "All devices: who has what of their memory.", Devices),
    Route("GET", "/v1/devices/{device}", showing.device, "One device.", DeviceView),
    Route(
        "GET",
        "/v1/sizes",
        showing.model_memory,
        "What each model needs of memory, declared and learned.",
        ModelMemoryList,
    ),
    Route("POST", "/v1/reload", changing.reload, "Read the configuration again.", ReloadResult),
)
OPENAPI_PATH = "/openapi.json"
