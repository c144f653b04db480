"""The fleet in Prometheus' text form (version 0.0.4). What is not known is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..views import DeviceView, FleetView, HoldingView, ModelView, ReplicaView, ServerView
from .exposition import Family, Sample, written
from .scaling_metrics import scaling_families

TEXT = "text/plain; version=0.0.4; charset=utf-8"


def page(fleet: FleetView) -> str:
    return written(_families(fleet))


def _families(fleet: FleetView) -> Iterator[Family]:
    yield from _gateway(fleet)
    yield from _models(fleet.models)
    yield from _replicas(fleet.replicas)
    yield from scaling_families(fleet.scaling)
    yield from _memory(fleet)


def _gateway(fleet: FleetView) -> Iterator[Family]:
    def workers(what: str) -> list[Sample]:
        return [Sample({"worker": str(view.index)}, float(getattr(view, what))) for view in fleet.workers]

    yield Family("steelyard_info", "gauge", "always 1", [Sample({"version": fleet.version}, 1)])
    yield Family("steelyard_uptime_seconds", "gauge", "since the supervisor began", [Sample({}, fleet.uptime)])
    yield Family("steelyard_worker_serving", "gauge", "1: it takes requests", workers("serving"))
    yield Family("steelyard_worker_connections", "gauge", "open connections of clients", workers("connections"))
    alarms = Counter(alarm.code for alarm in fleet.alarms)
    now = [Sample({"code": code}, number) for code, number in alarms.items()]
    yield Family("steelyard_alarms", "gauge", "what a person should know now; /v1/fleet says it in words", now)


def _models(models: tuple[ModelView, ...]) -> Iterator[Family]:
    def of(what: str) -> list[Sample]:
        return [Sample({"model": view.model}, float(getattr(view, what))) for view in models]

    yield Family("steelyard_model_replicas", "gauge", "replicas that are known", of("replicas"))
    yield Family("steelyard_model_replicas_ready", "gauge", "replicas that are ready", of("ready"))
    yield Family("steelyard_model_requests_in_flight", "gauge", "requests at its replicas", of("in_flight"))
    yield Family("steelyard_model_requests_waiting", "gauge", "requests in its waiting line", of("waiting"))
    yield Family("steelyard_model_panicking", "gauge", "1: too few replicas are healthy, all are used", of("panicking"))
    ended = [
        Sample({"model": view.model, "verdict": verdict}, number)
        for view in models
        for verdict, number in view.verdicts.items()
    ]
    yield Family("steelyard_model_requests_total", "counter", "requests that ended, by how", ended)
    latencies = [
        Sample({"model": view.model, "quantile": quantile}, seconds)
        for view in models
        for quantile, seconds in (("0.5", view.p50), ("0.99", view.p99))
    ]
    yield Family("steelyard_model_latency_seconds", "gauge", "of all answers since the start", latencies)


def _replicas(replicas: tuple[ReplicaView, ...]) -> Iterator[Family]:
    def of(what: str) -> list[Sample]:
        return [Sample({"model": view.model, "replica": view.id}, getattr(view, what)) for view in replicas]

    states = [Sample({"model": view.model, "replica": view.id, "state": view.state}, 1) for view in replicas]
    yield Family("steelyard_replica_state", "gauge", "1, with the state as a label", states)
    yield Family("steelyard_replica_requests_in_flight", "gauge", "requests it runs for us", of("in_flight"))
    yield Family("steelyard_replica_requests_total", "counter", "requests sent to it", of("picks"))
    yield Family("steelyard_replica_failures_total", "counter", "of these, how many failed", of("failures"))


# ---------------------------------------------------------------------- memory


def _memory(fleet: FleetView) -> Iterator[Family]:
    def of(what: str) -> list[Sample]:
        return [Sample({"device": view.device}, getattr(view, what)) for view in fleet.devices]

    ledger = [sample for view in fleet.devices for sample in _ledger(view)]
    yield Family("steelyard_device_memory_bytes", "gauge", "the ledger of a device, reserved against measured", ledger)
    yield Family("steelyard_device_requests", "gauge", "requests that run there, of all models", of("requests"))
    ran_out = of("ran_out")
    yield Family("steelyard_device_out_of_memory_total", "counter", "requests that ran out of memory there", ran_out)
    kept = [Sample({"device": view.device}, len(view.quarantines)) for view in fleet.devices]
    yield Family("steelyard_device_quarantines", "gauge", "sizes of requests that are kept from it for now", kept)
    sizes = [Sample({"model": view.model, "kind": "footprint"}, view.footprint) for view in fleet.sizes]
    yield Family("steelyard_model_memory_bytes", "gauge", "what a model holds with nothing running", sizes)
    held = [sample for server, holding in _holdings(fleet) for sample in _holding(server, holding)]
    yield Family("steelyard_replica_memory_bytes", "gauge", "held: by its server, whatever else runs there", held)


def _ledger(view: DeviceView) -> Iterator[Sample]:
    for kind in ("capacity", "budget", "reserved", "taken", "other", "measured"):
        known = view.capacity is not None or kind != "budget"
        yield Sample({"device": view.device, "kind": kind}, getattr(view, kind) if known else None)


def _holdings(fleet: FleetView) -> Iterator[tuple[ServerView, HoldingView]]:
    return ((server, holding) for view in fleet.devices for server in view.servers for holding in server.holdings)


def _holding(server: ServerView, holding: HoldingView) -> Iterator[Sample]:
    for kind, amount in (("base", holding.base), ("running", holding.running), ("held", server.held)):
        yield Sample({"model": holding.model, "replica": holding.replica, "kind": kind}, amount)
