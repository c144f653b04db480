"""Applies the configuration: models and replicas in the balancer, and their connection pools."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from time import time

from ...addresses import replica_address
from ...config import Config, ModelConfig, ReplicaConfig, ReplicaTlsConfig
from ...config.files import replica_tls_context
from ...core.balancer import Balancer
from ...core.decision import Decision
from ...core.replica import State
from ...link.messages import MemberUpdate
from ...protocols import make_dialect
from ...protocols.base import ServedModel
from ...protocols.load import EngineLoad
from ..http.forwarding import VIA_LINE
from ..proxy.connection_pool import ConnectionPool
from ..proxy.proxy import Proxy
from ..routing.client_identity import TrustPolicy
from ..routing.router import Router
from ..routing.shared_servers import SharedServers

NO_COLUMN = -1
LOAD_REPORT_REQUEST = b"endpoint-load-metrics-format: JSON"


class Upstream:
    """A replica's `context`: how to reach it, and what is recorded of it."""

    def __init__(
        self, config: ReplicaConfig, model: str, pool: ConnectionPool, pool_key: tuple[object, ...], column: int
    ) -> None:
        self.config = config
        self.model = model
        self.probed = True  # a probe tells when it is ready again
        self.load_report_header = b""  # of requests: asks for load reports
        self.last_response_at = 0.0  # when the head of an answer last came
        self.load: EngineLoad | None = None  # its last load report
        self.load_at = 0.0
        self.failure_reported_at = 0.0
        self.latency = (0.0, 0.0)  # p50 and p99, too slow to work out at each report
        self.latency_at = 0.0
        self.outcomes: dict[str, int] = {}  # attempts that did not end well, by outcome
        self.last_error = ""  # of the last attempt that failed: `HTTP 500`, or a reason
        self.last_error_at = 0.0
        self.pool = pool
        self.pool_key = pool_key
        self.column = column
        self.label = VIA_LINE + b"\r\nsteelyard-replica: " + config.name.encode()

    def count_outcome(self, outcome: str) -> None:
        """Not for attempts that ended well: those are the rest, and cost nothing to count."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def record_failure(self, outcome: str, error: str, now: float) -> None:
        self.count_outcome(outcome)
        self.last_error, self.last_error_at = error, now


class WorkerFleet:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._peers = proxy.dispatcher.peers
        self.models: dict[str, ModelConfig] = {}
        self._created: dict[str, int] = {}
        self._tls_contexts: dict[ReplicaTlsConfig, ssl.SSLContext] = {}
        self._servers = SharedServers()
        proxy.intake.fleet_view = self.model_views

    def apply(
        self,
        config: Config,
        columns: Mapping[str, Mapping[str, int]],
        now: float,
        devices: Mapping[str, int] | None = None,
    ) -> None:
        """Raises before anything is changed, or not at all."""
        Router(config)
        TrustPolicy(config)
        for name, model in config.models.items():
            if model != self.models.get(name):
                _check_policy(model, now)
        contexts = {
            model.tls: replica_tls_context(model.tls)
            for model in config.models.values()
            if any(replica_address(r.url).tls for r in model.replicas)
        }
        self._tls_contexts.update(contexts)
        proxy, balancer = self._proxy, self._proxy.balancer
        decisions: list[Decision] = []
        for name in [name for name in self.models if name not in config.models]:
            for replica in list(balancer.pool(name).replicas.values()):
                self._release_upstream(replica.context)
            decisions += balancer.remove_model(name, now=now)
            self._created.pop(name, None)
        proxy.configure(config, now)
        memory = proxy.dispatcher.memory
        memory.configure(config, devices or {})
        for name, model in config.models.items():
            before = self.models.get(name)
            if before is None:
                balancer.add_model(name, model.policy, model.pool_options(), model.policy_options, now)
                self._created[name] = int(time())
            else:
                if (before.policy, before.policy_options) != (model.policy, model.policy_options):
                    decisions += balancer.set_policy(name, model.policy, model.policy_options, now=now)
                if before.pool_options() != model.pool_options():
                    decisions += balancer.set_options(name, model.pool_options(), now=now)
            if devices:
                memory.declare_model(name, model, before)
            wanted = {replica.name for replica in model.replicas}
            gone = [id for id in balancer.pool(name).replicas if id not in wanted]
            decisions += self._sync_replicas(name, model, gone, model.replicas, columns.get(name, {}), now)
        self._peers.set_queue_columns(columns)
        self.models = dict(config.models)
        self._update_shared_models()
        proxy.dispatcher.execute(decisions, now)

    def update_members(self, message: MemberUpdate, now: float) -> None:
        model = self.models.get(message.model)
        if model is None:
            return  # removed meanwhile
        if any(replica_address(r.url).tls for r in message.added) and model.tls not in self._tls_contexts:
            self._tls_contexts[model.tls] = replica_tls_context(model.tls)
        decisions = self._sync_replicas(message.model, model, message.removed, message.added, message.columns, now)
        self._peers.set_queue_column(message.model, message.columns)
        self._update_shared_models()
        self._proxy.dispatcher.execute(decisions, now)

    def _update_shared_models(self) -> None:
        """Before any waiting request is sent: which models are on servers with others."""
        placed = [name for name, model in self.models.items() if model.placement is not None]
        self._proxy.intake.placed_models = self._servers.beside(placed)
        self._proxy.intake.shared_models = self._servers.sharing | self._proxy.intake.placed_models

    def _sync_replicas(
        self,
        name: str,
        model: ModelConfig,
        removed: Iterable[str],
        wanted: Iterable[ReplicaConfig],
        columns: Mapping[str, int],
        now: float,
    ) -> list[Decision]:
        balancer = self._proxy.balancer
        pool = balancer.pool(name)
        known_keys = {id: replica.context.pool_key for id, replica in pool.replicas.items()}
        elsewhere = [r.name for r in wanted if known_keys.get(r.name) not in (None, _pool_key(r, model))]
        decisions: list[Decision] = []
        for id in (*removed, *elsewhere):
            if id in pool.replicas:
                self._release_upstream(pool.replicas[id].context)
                decisions += balancer.remove_replica(id, name, now=now)
        for settings in wanted:
            known = pool.replicas.get(settings.name)
            if known is None:
                decisions += self._add(name, model, settings, columns.get(settings.name, NO_COLUMN), now)
                continue
            known.zone = settings.zone
            self._proxy.dispatcher.memory.move_replica(known, settings, model)
            if known.weight != settings.weight:
                balancer.set_weight(known.id, settings.weight, name, now=now)
            self._configure_upstream(known.context, model)
        return decisions

    def _add(
        self, name: str, model: ModelConfig, settings: ReplicaConfig, column: int, now: float
    ) -> Sequence[Decision]:
        upstream = self._make_upstream(name, settings, model, column)
        self._configure_upstream(upstream, model)
        # A replica that is probed gets nothing before a probe has seen it ready.
        state = State.STARTING if model.health.enabled else State.READY
        balancer, memory = self._proxy.balancer, self._proxy.dispatcher.memory
        place = memory.place_replica(settings, model, column)
        decisions = balancer.add_replica(
            settings.name,
            name,
            weight=settings.weight,
            zone=settings.zone,
            state=state,
            context=upstream,
            place=place,
            now=now,
        )
        if column != NO_COLUMN:
            self._peers.add_replica(balancer.pool(name).replicas[settings.name], name, column)
        return decisions

    def _configure_upstream(self, upstream: Upstream, model: ModelConfig) -> None:
        upstream.probed = model.health.enabled
        orca = model.load_metrics.orca
        if orca is None:  # where memory is counted, each answer may say what it took
            orca = bool(upstream.config.device) or (bool(model.dialect) and make_dialect(model.dialect).sends_orca)
        upstream.load_report_header = LOAD_REPORT_REQUEST if orca else b""

    def _make_upstream(self, name: str, settings: ReplicaConfig, model: ModelConfig, column: int) -> Upstream:
        key = _pool_key(settings, model)
        endpoints = self._proxy.connection_pools
        endpoint = endpoints.get(key)
        if endpoint is None:
            address = replica_address(settings.url)
            tls = (lambda tls=model.tls: self._tls_contexts[tls]) if address.tls else None
            endpoint = endpoints[key] = ConnectionPool(self._proxy, address, tls, model.tls.server_name)
        endpoint.references += 1
        self._servers.add(endpoint.address, name)
        return Upstream(settings, name, endpoint, key, column)

    def _release_upstream(self, upstream: Upstream) -> None:
        upstream.pool.references -= 1
        self._servers.remove(upstream.pool.address, upstream.model)
        if not upstream.pool.references:
            upstream.pool.close()
            self._proxy.connection_pools.pop(upstream.pool_key, None)
        self._peers.remove_replica(upstream.column)

    def model_views(self) -> list[ServedModel]:
        balancer = self._proxy.balancer
        views = []
        for name in balancer.models:
            pool = balancer.pool(name)
            at_zero = not pool.members and self.models[name].runtime is not None
            views.append(ServedModel(name, len(pool.members), len(pool.replicas), self._created[name], at_zero))
        return views


def _check_policy(model: ModelConfig, now: float) -> None:
    """In a trial balancer: a user's own policy may raise anything at any time."""
    trial = Balancer(Random(0))
    trial.add_model("", model.policy, model.pool_options(), model.policy_options, now)
    for replica in model.replicas:
        trial.add_replica(replica.name, weight=replica.weight, now=now)


def _pool_key(settings: ReplicaConfig, model: ModelConfig) -> tuple[object, ...]:
    return (settings.url, settings.device, model.tls)
