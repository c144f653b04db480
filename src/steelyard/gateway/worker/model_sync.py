"""Applies the configuration and its changes to a balancer: models, their options and policies, replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from ...config import Config, ModelConfig, ReplicaConfig, ReplicaTlsConfig
from ...core.balancer import Balancer
from ...core.decision import Decision
from ...core.replica import State
from ...link.messages import MemberUpdate
from ..proxy.dispatch_hooks import Driver
from .policy_guard import PolicyErrorLog, guard_policy, is_own_policy

NO_COLUMN = -1
ServerKey = tuple[str, str, ReplicaTlsConfig]  # another one is another server, under whatever name


class ReplicaContext:
    """A replica's `context`: what the driver knows of it."""

    def __init__(self, config: ReplicaConfig, model: str, server_key: ServerKey, column: int) -> None:
        self.config = config
        self.model = model
        self.server_key = server_key
        self.column = column  # in the shared memory ledger
        self.probed = True  # a probe tells when it is ready again
        self.failure_reported_at = 0.0
        self.latency = (0.0, 0.0)  # p50 and p99, too slow to work out at each report
        self.latency_at = 0.0


class ModelSync:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.models: dict[str, ModelConfig] = {}
        self.policy_errors = PolicyErrorLog()

    # What a derived class adds: how replicas are reached, where that is known.

    def _check(self, config: Config) -> None:
        """Raises if something of it cannot be used."""

    def _configure(self, config: Config, now: float) -> None:
        """It is in force from now on."""

    def _model_added(self, name: str) -> None: ...

    def _model_removed(self, name: str) -> None: ...

    def _make_context(self, name: str, settings: ReplicaConfig, key: ServerKey, column: int) -> ReplicaContext:
        return ReplicaContext(settings, name, key, column)

    def _configure_context(self, context: ReplicaContext, model: ModelConfig) -> None:
        context.probed = model.health.enabled

    def _release_context(self, context: ReplicaContext) -> None:
        """Its replica is gone, or another server under the same name."""

    def _members_changed(self) -> None:
        """Called before waiting requests are sent."""

    # ------------------------------------------------------------------

    def apply(
        self,
        config: Config,
        columns: Mapping[str, Mapping[str, int]],
        now: float,
        devices: Mapping[str, int] | None = None,
    ) -> None:
        """Raises before anything is changed, or not at all."""
        self._check(config)
        for name, model in config.models.items():
            if model != self.models.get(name):
                _check_policy(model, now)
        balancer, memory = self._driver.balancer, self._driver.memory
        decisions: list[Decision] = []
        for name in [name for name in self.models if name not in config.models]:
            for replica in list(balancer.pool(name).replicas.values()):
                self._release_context(replica.context)
            decisions += balancer.remove_model(name, now=now)
            self._model_removed(name)
        self._configure(config, now)
        memory.configure(config, devices or {})
        for name, model in config.models.items():
            before = self.models.get(name)
            if before is None:
                balancer.add_model(name, model.policy, model.pool_options(), model.policy_options, now)
                self._guard_policy(name, model.policy)
                self._model_added(name)
            else:
                if (before.policy, before.policy_options) != (model.policy, model.policy_options):
                    decisions += balancer.set_policy(name, model.policy, model.policy_options, now=now)
                    self._guard_policy(name, model.policy)
                if before.pool_options() != model.pool_options():
                    decisions += balancer.set_options(name, model.pool_options(), now=now)
            if devices:
                memory.declare_model(name, model, before)
            wanted = {replica.name for replica in model.replicas}
            gone = [id for id in balancer.pool(name).replicas if id not in wanted]
            decisions += self._sync_replicas(name, model, gone, model.replicas, columns.get(name, {}), now)
        self.models = dict(config.models)
        self._members_changed()
        self._driver.execute(decisions, now)

    def _guard_policy(self, model: str, policy: str) -> None:
        if is_own_policy(policy):
            guard_policy(self._driver.balancer.pool(model).policy, policy, self.policy_errors)

    def update_members(self, message: MemberUpdate, now: float) -> None:
        model = self.models.get(message.model)
        if model is None:
            return  # removed meanwhile
        decisions = self._sync_replicas(message.model, model, message.removed, message.added, message.columns, now)
        self._members_changed()
        self._driver.execute(decisions, now)

    def _sync_replicas(
        self,
        name: str,
        model: ModelConfig,
        removed: Iterable[str],
        wanted: Iterable[ReplicaConfig],
        columns: Mapping[str, int],
        now: float,
    ) -> list[Decision]:
        balancer = self._driver.balancer
        replicas = balancer.pool(name).replicas
        elsewhere = [
            settings.name
            for settings in wanted
            if settings.name in replicas and replicas[settings.name].context.server_key != _server_key(settings, model)
        ]
        decisions: list[Decision] = []
        for id in (*removed, *elsewhere):
            if id in replicas:
                self._release_context(replicas[id].context)
                decisions += balancer.remove_replica(id, name, now=now)
        for settings in wanted:
            known = replicas.get(settings.name)
            if known is None:
                decisions += self._add(name, model, settings, columns.get(settings.name, NO_COLUMN), now)
                continue
            known.zone = settings.zone
            self._driver.memory.move_replica(known, settings, model)
            if known.weight != settings.weight:
                balancer.set_weight(known.id, settings.weight, name, now=now)
            self._configure_context(known.context, model)
        return decisions

    def _add(
        self, name: str, model: ModelConfig, settings: ReplicaConfig, column: int, now: float
    ) -> Sequence[Decision]:
        context = self._make_context(name, settings, _server_key(settings, model), column)
        self._configure_context(context, model)
        # A replica that is probed gets nothing before a probe has seen it ready.
        state = State.STARTING if model.health.enabled else State.READY
        place = self._driver.memory.place_replica(settings, model, column)
        return self._driver.balancer.add_replica(
            settings.name,
            name,
            weight=settings.weight,
            zone=settings.zone,
            state=state,
            context=context,
            place=place,
            now=now,
        )


def _server_key(settings: ReplicaConfig, model: ModelConfig) -> ServerKey:
    return (settings.url, settings.device, model.tls)


def _check_policy(model: ModelConfig, now: float) -> None:
    """In a trial balancer: a user's own policy may raise anything at any time."""
    trial = Balancer(Random(0))
    trial.add_model("", model.policy, model.pool_options(), model.policy_options, now)
    for replica in model.replicas:
        trial.add_replica(replica.name, weight=replica.weight, now=now)
