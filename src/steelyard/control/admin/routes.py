"""All routes in one table, from which the application and the OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, get_type_hints

from . import commands, queries
from .call import AdminCall
from .schemas import ApiInput, LeaseRequest, LogQuery, ModelChanges, NewReplica, NoInput, ReplicaChanges, Withdrawal


class Endpoint(NamedTuple):
    method: str
    path: str
    handler: Callable[[AdminCall], Awaitable[Any]]
    about: str
    accepts: type[ApiInput] = NoInput
    query: type[ApiInput] = NoInput
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
    Endpoint("GET", "/healthz", queries.healthz, "Liveness: do the gateway's own processes work?"),
    Endpoint("GET", "/readyz", queries.readyz, "Readiness: should it get traffic now?"),
    Endpoint("GET", "/v1/fleet", queries.fleet, "The whole fleet, with every number the balancer uses."),
    Endpoint("GET", "/metrics", queries.metrics, "Metrics in the Prometheus text format."),
    Endpoint("GET", "/v1/live", queries.live, "A stream of the fleet, once a second.", streams=True),
    Endpoint("GET", "/v1/live/latest", queries.live_latest, "The latest update of that stream."),
    Endpoint("GET", "/v1/slo", queries.slo, "SLOs: attainment, error budgets and burn rates."),
    Endpoint("GET", "/v1/events", queries.events, "Events, the latest last."),
    Endpoint("GET", "/v1/models", queries.models, "All models."),
    Endpoint("GET", _MODEL, queries.model, "One model."),
    Endpoint("PATCH", _MODEL, commands.change_model, "Change its policy or concurrency.", ModelChanges),
    Endpoint("GET", _REPLICAS, queries.replicas, "The replicas of a model."),
    Endpoint("POST", _REPLICAS, commands.add_replica, "Add a replica, until a restart.", NewReplica, status=201),
    Endpoint("GET", _REPLICA, queries.replica, "One replica."),
    Endpoint("PATCH", _REPLICA, commands.change_replica, "Change its weight.", ReplicaChanges),
    Endpoint("DELETE", _REPLICA, commands.remove_replica, "Remove one that was added or registered.", status=204),
    Endpoint("POST", f"{_REPLICA}/drain", commands.drain, "Send it no new requests; running ones finish."),
    Endpoint("POST", f"{_REPLICA}/undrain", commands.undrain, "Send it requests again when it is ready."),
    Endpoint("POST", f"{_REPLICA}/load", commands.load, "Load the model there now."),
    Endpoint("POST", f"{_REPLICA}/unload", commands.unload, "Unload it there when running requests are done."),
    Endpoint("GET", f"{_REPLICA}/log", queries.replica_log, "The last output of a started replica.", query=LogQuery),
    Endpoint("PUT", _LEASE, commands.renew_lease, "A replica registers, or renews.", LeaseRequest),
    Endpoint("DELETE", _LEASE, commands.withdraw_lease, "A registered replica leaves.", query=Withdrawal, status=204),
    Endpoint("GET", "/v1/scaling", queries.scaling, "How many replicas models have, should have, and why."),
    Endpoint("GET", f"{_MODEL}/scaling", queries.model_scaling, "Scaling of one model, with its history."),
    Endpoint("GET", "/v1/devices", queries.devices, "Devices and their memory by model."),
    Endpoint("GET", "/v1/devices/{device}", queries.device, "One device."),
    Endpoint("GET", "/v1/model-memory", queries.model_memory, "Memory that each model needs, declared and learned."),
    Endpoint("POST", "/v1/reload", commands.reload, "Read the configuration again."),
)
OPENAPI_PATH = "/openapi.json"
MOVED_PATHS = {"/v1/pulse": "/v1/live/latest", "/v1/sizes": "/v1/model-memory"}  # old: new
