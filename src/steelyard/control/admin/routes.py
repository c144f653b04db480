"""All routes in one table, from which the application and the OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, get_type_hints

from . import commands, queries
from .call import AdminCall
from .schemas import LeaseRequest, LogQuery, ModelChanges, NewReplica, NoInput, ReplicaChanges, RequestBody, Withdrawal


class Route(NamedTuple):
    method: str
    path: str
    handler: Callable[[AdminCall], Awaitable[Any]]
    about: str
    accepts: type[RequestBody] = NoInput
    query: type[RequestBody] = NoInput
    status: int = 200
    streams: bool = False  # Server-Sent Events

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def returns(self) -> type[Any] | None:
        """None: no body; str: text."""
        kind: type[Any] = get_type_hints(self.handler)["return"]
        return None if kind is type(None) else kind


_MODEL = "/v1/models/{model}"
_REPLICAS = f"{_MODEL}/replicas"
_REPLICA = f"{_REPLICAS}/{{replica}}"
_LEASE = f"{_MODEL}/leases/{{replica}}"

ROUTES = (
    Route("GET", "/healthz", queries.healthz, "Does Steelyard itself work?"),
    Route("GET", "/readyz", queries.readyz, "Should it get traffic now?"),
    Route("GET", "/v1/fleet", queries.fleet, "Everything, with every number the balancer uses."),
    Route("GET", "/metrics", queries.metrics, "The fleet in numbers, in Prometheus' text form."),
    Route("GET", "/v1/live", queries.live, "The fleet, followed: once a second.", streams=True),
    Route("GET", "/v1/live/latest", queries.live_latest, "The same once: what happens this second."),
    Route("GET", "/v1/slo", queries.slo, "SLOs: attainment, error budgets and burn rates."),
    Route("GET", "/v1/events", queries.events, "What happened, the latest last."),
    Route("GET", "/v1/models", queries.models, "All models."),
    Route("GET", _MODEL, queries.model, "One model."),
    Route("PATCH", _MODEL, commands.change_model, "Change its policy or concurrency.", ModelChanges),
    Route("GET", _REPLICAS, queries.replicas, "The replicas of a model."),
    Route("POST", _REPLICAS, commands.add_replica, "Add a replica, until a restart.", NewReplica, status=201),
    Route("GET", _REPLICA, queries.replica, "One replica."),
    Route("PATCH", _REPLICA, commands.change_replica, "Change its weight.", ReplicaChanges),
    Route("DELETE", _REPLICA, commands.remove_replica, "Remove one that was added or registered.", status=204),
    Route("POST", f"{_REPLICA}/drain", commands.drain, "Send it nothing new; what runs is finished."),
    Route("POST", f"{_REPLICA}/undrain", commands.undrain, "Send it requests again when it is ready."),
    Route("POST", f"{_REPLICA}/load", commands.load, "Load the model there now."),
    Route("POST", f"{_REPLICA}/unload", commands.unload, "Unload it there when what runs has ended."),
    Route("GET", f"{_REPLICA}/log", queries.replica_log, "What one that we started printed last.", query=LogQuery),
    Route("PUT", _LEASE, commands.renew_lease, "A replica registers, or renews.", LeaseRequest),
    Route("DELETE", _LEASE, commands.withdraw_lease, "A registered replica leaves.", query=Withdrawal, status=204),
    Route("GET", "/v1/scaling", queries.scaling, "How many replicas models have, should have, and why."),
    Route("GET", f"{_MODEL}/scaling", queries.model_scaling, "The same of one model, with its history."),
    Route("GET", "/v1/devices", queries.devices, "All devices: who has what of their memory."),
    Route("GET", "/v1/devices/{device}", queries.device, "One device."),
    Route("GET", "/v1/model-memory", queries.model_memory, "What each model needs of memory, declared and learned."),
    Route("POST", "/v1/reload", commands.reload, "Read the configuration again."),
)
OPENAPI_PATH = "/openapi.json"
MOVED_PATHS = {"/v1/pulse": "/v1/live/latest", "/v1/sizes": "/v1/model-memory"}  # old: new
