"""Operations on a running supervisor, for operators and replicas, through the admin API.

Each raises NotFoundError, ConflictError or InvalidError before anything is changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...addresses import replica_address
from ...config import ModelConfig, ReplicaConfig
from ...config.rules.admin import gateway_address_error
from ...config.rules.model import model_problems
from ...core.replica import Event, State
from ...documents import format_key
from ..errors import ConflictError, InvalidError, NotFoundError
from ..fleet.fleet import Fleet
from ..fleet.registry import ADDED, CONFIGURED, DISCOVERED, REGISTERED, STARTED, Member
from ..observability.fleet_view import MetricsSnapshot, fleet_totals, fleet_view, take_metrics_snapshot
from ..observability.live import LiveFeed
from ..observability.views import FleetEvent, FleetView, ScalingView
from ..workers.pool import WorkerPool
from .controllers import Controllers

_NOT_REMOVABLE = {
    CONFIGURED: "the configuration names it: take it out there",
    DISCOVERED: "discovery names it: take it out there",
    STARTED: "Steelyard started it: change autoscale or runtime.replicas",
}


class FleetAdmin:
    def __init__(
        self,
        fleet: Fleet,
        controllers: Controllers,
        worker_pool: WorkerPool,
        reload: Callable[[], Awaitable[str]],
        live_feed: LiveFeed,
    ) -> None:
        self._fleet = fleet
        self._controllers = controllers
        self._workers = worker_pool
        self._reload = reload
        self.live_feed = live_feed

    # ------------------------------------------------------------------ views

    def fleet(self) -> FleetView:
        return fleet_view(self._fleet, self._controllers, self._workers, self.live_feed.started_at)

    def metrics(self) -> tuple[FleetView, MetricsSnapshot]:
        totals = fleet_totals(self._fleet, self._workers)
        view = fleet_view(self._fleet, self._controllers, self._workers, self.live_feed.started_at, totals)
        return view, take_metrics_snapshot(self._fleet, self._workers, totals)

    def events(self) -> list[FleetEvent]:
        return self._fleet.events.latest()

    def is_live(self) -> bool:
        return any(worker.serving for worker in self._workers.workers())

    def readiness_problems(self) -> list[str]:
        """Why it should get no traffic now; empty: it should."""
        problems = [] if self.is_live() else ["no worker serves"]
        for alarm in self.fleet().alarms:
            if alarm.code == "balancer_unavailable":
                problems.append(alarm.message)
            elif alarm.code == "no_ready_replica":
                problems.append(f"no replica of {alarm.model} is ready")
        return problems

    def scaling(self, model: str) -> ScalingView:
        """With all its steps."""
        self._model(model)
        for view in self._controllers.autoscaler.views():
            if view.model == model:
                return view
        raise NotFoundError(f"{model} has neither `autoscale` nor `runtime`: others decide how many replicas it has")

    def log_tail(self, model: str, replica: str, lines: int) -> tuple[str, ...]:
        self._model(model)
        words = self._controllers.replicas.log_tail((model, replica), lines)
        if words is None:
            self._member(model, replica)
            raise NotFoundError(f"Steelyard did not start {replica!r}: its log is with what started it")
        return words

    # ------------------------------------------------------------------ replicas

    async def add(self, model: str, replica: ReplicaConfig) -> None:
        """Until it is removed or Steelyard restarts."""
        settings, registry = self._model(model), self._fleet.members.registry
        if registry.find(model, replica.name) is not None:
            raise ConflictError(f"{model} has a replica {replica.name!r} already; give the new one another id")
        self._check_replica(settings, replica)
        registry.set_source(ADDED, model, (*registry.from_source(ADDED, model), replica))
        self._fleet.members.refresh(model)

    async def remove(self, model: str, replica: str) -> None:
        """One that was added or registered; what runs there is finished."""
        member = self._member(model, replica)
        registry, fleet = self._fleet.members.registry, self._fleet
        if member.source in _NOT_REMOVABLE:
            raise ConflictError(f"{_NOT_REMOVABLE[member.source]}; to keep requests away now, drain it")
        if member.source == ADDED:
            registry.set_source(ADDED, model, (r for r in registry.from_source(ADDED, model) if r.name != replica))
            fleet.members.refresh(model, at_once=True)
        else:
            fleet.registrations.remove((model, replica))
        registry.weight_overrides.pop((model, replica), None)
        fleet.health.drained.discard((model, replica))
        await self._workers_updated()

    async def drain(self, model: str, replica: str) -> None:
        """Returns when no worker sends it anything new; what runs there is finished."""
        self._member(model, replica)
        self._fleet.health.drained.add((model, replica))
        self._fleet.transition((model, replica), Event.DRAIN, "an operator drains it")
        await self._workers_updated()

    async def _workers_updated(self) -> None:
        """Returns when workers have applied it."""
        self._fleet.sync.flush()
        await self._workers.request_reports()

    async def undrain(self, model: str, replica: str) -> None:
        """It gets requests again when a probe that starts now finds it ready."""
        self._member(model, replica)
        key = (model, replica)
        if self._fleet.registrations.has_lapsed(key):
            raise ConflictError("its lease ran out, or it left: it comes back when it registers again")
        self._fleet.health.drained.discard(key)
        status = self._fleet.health.statuses.get(key)
        if status is None or status.state is State.DRAINING:
            self._fleet.transition(key, Event.UNDRAIN, "no longer drained; to be seen ready again")

    async def load(self, model: str, replica: str) -> None:
        """Returns when the load has begun; other models may be unloaded for it."""
        await self._place(model, replica, load=True)

    async def unload(self, model: str, replica: str) -> None:
        """After what runs there is finished. Requests may bring it back."""
        await self._place(model, replica, load=False)

    async def _place(self, model: str, replica: str, *, load: bool) -> None:
        self._member(model, replica)
        if self._model(model).placement is None:
            raise ConflictError(f"{model} has no `placement`: its servers load and unload it by themselves")
        if reason := self._controllers.placement.request((model, replica), load=load):
            raise ConflictError(reason)
        await self._workers_updated()

    async def set_weight(self, model: str, replica: str, weight: float | None) -> None:
        """None: what the configuration says."""
        member = self._member(model, replica)
        weights = self._fleet.members.registry.weight_overrides
        if weight is None:
            weights.pop((model, replica), None)
        else:
            self._check_replica(self._model(model), msgspec.structs.replace(member.settings, weight=weight))
            weights[model, replica] = weight
        self._fleet.members.refresh(model)

    # ------------------------------------------------------------------ models and the configuration

    async def set_model(self, model: str, changes: dict[str, Any]) -> None:
        """`changes`: policy, policy_options, concurrency; None: what the configuration says."""
        async with self._fleet.config_lock:
            self._model(model)
            registry = self._fleet.members.registry
            before = registry.model_overrides.get(model, {})
            after = _merge_overrides(before, changes)
            settings = registry.config.models[model]
            if "policy_options" in after:  # they belong to this policy, whatever the configuration says later
                after.setdefault("policy", settings.policy)
            for wrong in model_problems((), msgspec.structs.replace(settings, **after), self._fleet.config):
                raise InvalidError(format_key(wrong.key), wrong.what)
            registry.model_overrides[model] = after
            problem = "not put in force"
            try:
                problem = await self._fleet.configure(registry.config)
            finally:
                if problem:
                    registry.model_overrides[model] = before
            if problem:
                raise InvalidError("", problem)
            if not after:
                del registry.model_overrides[model]
            what = ", ".join(f"{key}: {value}" for key, value in after.items()) or "what the configuration says"
            self._fleet.events.record("model", f"set to {what}", model=model)

    async def reload(self) -> None:
        if problem := await self._reload():
            raise InvalidError("", f"the new configuration is refused, the last good one stays: {problem}")

    # ------------------------------------------------------------------ leases

    async def register(self, model: str, replica: ReplicaConfig, seconds: float, instance: str) -> float:
        """Registers a replica or renews its lease. Returns for how many seconds it holds.

        Another `instance` than before means that the server restarted.
        """
        settings, fleet = self._model(model), self._fleet
        member = fleet.members.registry.find(model, replica.name)
        if member is not None and member.source != REGISTERED:
            raise ConflictError(f"{replica.name!r} is a replica of {model} already, and not a registered one")
        lease = fleet.registrations.leases.lease((model, replica.name))
        if lease is None or lease.replica != replica:
            self._check_replica(settings, replica)
        held = min(seconds, fleet.members.registry.config.admin.max_lease)
        news = fleet.registrations.leases.announce(model, replica, held, instance, fleet.now())
        fleet.registrations.registered((model, replica.name), news)
        return held

    async def deregister(self, model: str, replica: str, instance: str) -> None:
        """Returns when no worker sends it anything new."""
        member = self._member(model, replica)
        if not self._fleet.registrations.leases.withdraw(model, replica, instance):
            raise ConflictError(f"another instance has registered as {replica!r} since, or it never registered")
        if member.source == REGISTERED:
            self._fleet.registrations.drain((model, replica), "it deregistered")
            await self._workers_updated()

    # ------------------------------------------------------------------ checks

    def _model(self, model: str) -> ModelConfig:
        found = self._fleet.config.models.get(model)
        if found is None:
            raise NotFoundError(f"there is no model {model!r}")
        return found

    def _member(self, model: str, replica: str) -> Member:
        self._model(model)
        member = self._fleet.members.registry.find(model, replica)
        if member is None:
            raise NotFoundError(f"{model} has no replica {replica!r}")
        return member

    def _check_replica(self, model: ModelConfig, replica: ReplicaConfig) -> None:
        """By the rules of the configuration; and requests must not go round in circles through ourselves."""
        config = self._fleet.config
        for problem in model_problems(("replica",), msgspec.structs.replace(model, replicas=(replica,)), config):
            if problem.key[:3] == ("replica", "replicas", 0):
                raise InvalidError(format_key(problem.key[3:]), problem.what)
        address = replica_address(replica.url)
        if what := gateway_address_error(address, config, self._fleet.members.admin_address):
            raise InvalidError("url", what)
        for other in (r for m in config.models.values() for r in m.replicas):
            if config.devices and other.device != replica.device and str(replica_address(other.url)) == str(address):
                where = f"on {other.device}" if other.device else "on no device"
                raise ConflictError(f"the server at {address} is {where}, as replica {other.name!r} says")


def _merge_overrides(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """None takes an override back."""
    after = {key: value for key, value in (before | changes).items() if value is not None}
    if "policy" in changes and changes.get("policy_options") is None:
        after.pop("policy_options", None)  # of another policy
        if changes["policy"] is not None:
            after["policy_options"] = {}  # those of the configuration are of another policy, too
    return after
