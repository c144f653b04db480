"""A fleet in memory that does, and refuses, what `FleetAdmin` documents."""

from __future__ import annotations

import asyncio
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from steelyard.config import ReplicaConfig
from steelyard.control.errors import ConflictError, InvalidError, NotFoundError
from steelyard.control.observability.event_log import EventLog
from steelyard.control.observability.fleet_view import MetricsSnapshot
from steelyard.control.observability.live import LiveFeed
from steelyard.control.observability.views import (
    Alarm,
    BalancerReplicaView,
    DeviceView,
    DiscoveryView,
    FleetEvent,
    FleetView,
    InstanceView,
    LoadSignalView,
    ModelMemoryView,
    ModelView,
    ProbeView,
    QuarantineView,
    ReplicaView,
    ResidentModelView,
    ScalingStepView,
    ScalingView,
    ServerView,
    StartFailureView,
    View,
    WorkerView,
)
from steelyard.core.policies import POLICIES

LEASE_SECONDS = 60.0
MAX_EVENTS = 100
STEPS, LATEST = 7, 5

V = TypeVar("V", bound=View)


def shown(kind: type[V], **fields: Any) -> V:
    """A view with these fields; what is not given is anything of its type, so a new field breaks no test."""
    given = {field.name: fields.pop(field.name, _anything(field.type)) for field in msgspec.structs.fields(kind)}
    assert not fields, f"{kind.__name__} has no {', '.join(fields)}"
    return msgspec.convert(given, kind)


def _anything(kind: Any) -> Any:
    kinds = get_args(kind) if get_origin(kind) is UnionType else (kind,)
    if NoneType in kinds:
        return None
    plain = get_origin(kinds[0]) or kinds[0]
    return {float: 0.5, int: 1}[plain] if plain in (float, int) else plain()


def replica(model: str, settings: ReplicaConfig, source: str) -> ReplicaView:
    return shown(
        ReplicaView,
        model=model,
        id=settings.name,
        url=settings.url,
        source=source,
        state="ready",
        reason="its probe says so",
        weight=settings.weight,
        zone=settings.zone,
        device=settings.device,
        probe=shown(ProbeView, result="ready", age=1.5),
        load_signals=shown(LoadSignalView, running=2.0),
        balancer=shown(BalancerReplicaView, state="ready", weight=settings.weight),
    )


def model(name: str) -> ModelView:
    return shown(ModelView, model=name, policy="least_work", concurrency="unlimited", outcomes={"ok": 14}, p50=0.1)


def device(name: str, model: str) -> DeviceView:
    holding = shown(ResidentModelView, model=model, replica="a", state="ready", base=3 << 30, running=1 << 20)
    return shown(
        DeviceView,
        device=name,
        capacity=8 << 30,
        source="configured",
        headroom=0.1,
        measured=4 << 30,
        age=0.5,
        servers=(shown(ServerView, server="127.0.0.1:8001", measured=3 << 30, models=(holding,)),),
        quarantines=(shown(QuarantineView, model=model, bytes=1 << 30),),
    )


def scaling(model: str, started: list[ReplicaView]) -> ScalingView:
    steps = [shown(ScalingStepView, before=n, after=n + 1, reason=f"{n} → {n + 1}: more work") for n in range(STEPS)]
    return shown(
        ScalingView,
        model=model,
        mode="act",
        scaler="work",
        desired=3,
        min_replicas=0,
        max_replicas=8,
        reason="2 → 3: 1.9 s/s of work offered",
        offered_load=1.9,
        recent_load=2.5,
        panic_mode=True,
        replica_seconds=720.5,
        instances=tuple(shown(InstanceView, model=model, replica=r.id, url=r.url, phase="ready") for r in started),
        start_failure=shown(
            StartFailureView, replica="s9", reason="ended", message="exit code 1", log_tail=("out of memory",)
        ),
        steps=tuple(steps),
    )


class FakeOperations:
    """Two models; the replica `a` of each is of the configuration. `wrong_config`: what a reload is refused for.

    The first model is loaded on demand, and its replica `a` is on the device `node1/gpu0`. It is scaled, the others are
    not. Replicas that are put there with the source `runtime` have a log, of `printed` lines.
    """

    def __init__(self, *names: str) -> None:
        self.models = {name: model(name) for name in names or ("llama", "org/mœdel:7b.1")}
        self.replicas: dict[tuple[str, str], ReplicaView] = {}
        self.weights: dict[tuple[str, str], float] = {}  # of the configuration
        self.instances: dict[tuple[str, str], str] = {}
        self._events: list[FleetEvent] = []
        self.serving = True
        self.wrong_config = ""
        self.slow: asyncio.Event | None = None  # a drain waits for it
        self.bug = False
        self.printed = 3
        self._live_feed = LiveFeed(lambda: ({}, {}), EventLog(), 0.0)
        self.rolling = 0  # for so many looks, what is added is not shown yet
        for name in self.models:
            self.put_replica(name, ReplicaConfig(url="http://127.0.0.1:8001", id="a"), "config")

    def fleet(self) -> FleetView:
        if self.bug:
            raise ZeroDivisionError("a secret of the fleet")
        self.rolling -= 1
        replicas = [view for view in self.replicas.values() if view.source != "admin" or self.rolling < 0]
        return shown(
            FleetView,
            workers=(shown(WorkerView, index=0, pid=4711, serving=self.serving),),
            models=tuple(map(self._counted, self.models.values())),
            replicas=tuple(replicas),
            discovery=(shown(DiscoveryView, model="llama", source="file r.yaml", held_back=("x",)),),
            alarms=(shown(Alarm, code="discovery_failed", message="it is empty"),),
            devices=(device("node1/gpu0", next(iter(self.models))), shown(DeviceView, device="dark")),
            model_memory=tuple(shown(ModelMemoryView, model=name, footprint=3 << 30) for name in self.models),
            scaling=(msgspec.structs.replace(scaled := self._scaled(), steps=scaled.steps[-LATEST:]),),
        )

    @property
    def live_feed(self) -> LiveFeed:
        return self._live_feed

    def metrics(self) -> tuple[FleetView, MetricsSnapshot]:
        return self.fleet(), MetricsSnapshot()

    def events(self) -> list[FleetEvent]:
        return self._events

    def is_live(self) -> bool:
        return self.serving

    def readiness_problems(self) -> list[str]:
        ready = {name for (name, _), view in self.replicas.items() if view.state == "ready"}
        return [f"no replica of {name} is ready" for name in self.models if name not in ready]

    def scaling(self, model: str) -> ScalingView:
        self._model(model)
        if model != next(iter(self.models)):
            raise NotFoundError(f"{model} has neither `autoscale` nor `runtime`")
        return self._scaled()

    def log_tail(self, model: str, replica: str, lines: int) -> tuple[str, ...]:
        if self._replica(model, replica).source != "runtime":
            raise NotFoundError(f"Steelyard did not start {replica!r}: its log is with what started it")
        return tuple(f"line {n} of {replica}" for n in range(self.printed))[-lines:]

    async def add(self, model: str, replica: ReplicaConfig) -> None:
        self._model(model)
        if (model, replica.name) in self.replicas:
            raise ConflictError(f"{model} has a replica {replica.name!r} already")
        self._check(replica)
        self.put_replica(model, replica, "admin")

    async def remove(self, model: str, replica: str) -> None:
        if self._replica(model, replica).source in ("config", "discovery", "runtime"):
            raise ConflictError("the configuration names it: take it out there")
        self._forget(model, replica)

    async def drain(self, model: str, replica: str) -> None:
        self._replica(model, replica)
        if self.slow is not None:
            await self.slow.wait()
        self._change(model, replica, state="draining", draining=True)

    async def undrain(self, model: str, replica: str) -> None:
        self._replica(model, replica)
        self._change(model, replica, state="loading", draining=False)

    async def load(self, model: str, replica: str) -> None:
        self._movable(model, replica)
        self._change(model, replica, state="loading")

    async def unload(self, model: str, replica: str) -> None:
        self._movable(model, replica)
        self._change(model, replica, state="unloaded")

    async def set_weight(self, model: str, replica: str, weight: float | None) -> None:
        self._replica(model, replica)
        self._change(model, replica, weight=self.weights[model, replica] if weight is None else weight)

    async def set_model(self, model: str, changes: dict[str, Any]) -> None:
        view = self._model(model)
        policy = changes.get("policy")
        if policy is not None and policy not in POLICIES:
            raise InvalidError("policy", f"no policy {policy!r}")
        if "no_such" in (changes.get("policy_options") or {}):
            raise InvalidError("policy_options.no_such", f"{policy} has no such option")
        kept = {name for name in view.overridden if name not in changes}
        given = {name for name, value in changes.items() if value is not None}
        fields = {
            "policy": changes.get("policy", view.policy) or "least_work",
            "concurrency": changes.get("concurrency", view.concurrency) or "unlimited",
        }
        self.models[model] = msgspec.structs.replace(view, **fields, overridden=tuple(sorted(kept | given)))
        self._note("model", f"set to {sorted(given)}", model)

    async def reload(self) -> None:
        if self.wrong_config:
            raise InvalidError("models.llama.policy", self.wrong_config)
        self._note("config", "read again")

    async def register(self, model: str, replica: ReplicaConfig, seconds: float, instance: str) -> float:
        self._model(model)
        key = model, replica.name
        if key in self.replicas and self.replicas[key].source != "registration":
            raise ConflictError(f"{replica.name!r} is a replica of {model} already, and not a registered one")
        self._check(replica)
        if self.instances.get(key) != instance:
            self.put_replica(model, replica, "registration", state="loading")
        self.instances[key] = instance
        self._change(model, replica.name, lease=min(seconds, LEASE_SECONDS))
        return min(seconds, LEASE_SECONDS)

    async def deregister(self, model: str, replica: str, instance: str) -> None:
        self._replica(model, replica)
        known = self.instances.get((model, replica))
        if known is None or (instance and instance != known):  # an empty one stands for whichever it is
            raise ConflictError(f"another instance has registered as {replica!r} since, or it never registered")
        self._forget(model, replica)

    # ------------------------------------------------------------------

    def _counted(self, view: ModelView) -> ModelView:
        own = [replica for replica in self.replicas.values() if replica.model == view.model]
        ready = sum(replica.state == "ready" for replica in own)
        return msgspec.structs.replace(view, replicas=len(own), ready=ready)

    def _scaled(self) -> ScalingView:
        name = next(iter(self.models))
        return scaling(name, [r for r in self.replicas.values() if (r.model, r.source) == (name, "runtime")])

    def _model(self, model: str) -> ModelView:
        if model not in self.models:
            raise NotFoundError(f"there is no model {model!r}")
        return self.models[model]

    def _replica(self, model: str, replica: str) -> ReplicaView:
        self._model(model)
        if (model, replica) not in self.replicas:
            raise NotFoundError(f"{model} has no replica {replica!r}")
        return self.replicas[model, replica]

    def _movable(self, model: str, replica: str) -> None:
        self._replica(model, replica)
        if model != next(iter(self.models)):
            raise ConflictError(f"{model} has no placement: it is loaded by whoever starts its servers")

    def _check(self, replica: ReplicaConfig) -> None:
        if replica.device == "nowhere":
            raise InvalidError("device", f"no {replica.device!r} under devices")

    def put_replica(self, name: str, settings: ReplicaConfig, source: str, state: str = "ready") -> None:
        view = msgspec.structs.replace(replica(name, settings, source), state=state)
        self.replicas[name, settings.name] = view
        self.weights[name, settings.name] = settings.weight
        self._note("replica", f"known from {source}", name, settings.name)

    def _forget(self, model: str, replica: str) -> None:
        del self.replicas[model, replica]
        self.instances.pop((model, replica), None)
        self._note("replica", "gone", model, replica)

    def _change(self, model: str, replica: str, **fields: Any) -> None:
        self.replicas[model, replica] = msgspec.structs.replace(self.replicas[model, replica], **fields)

    def _note(self, kind: str, what: str, model: str = "", replica: str = "") -> None:
        self._events = [*self._events, FleetEvent(age=0.0, kind=kind, message=what, model=model, replica=replica)]
        self._events = self._events[-MAX_EVENTS:]
