"""The fleet as a worker needs it: how each replica is reached, and its connection pool."""

from __future__ import annotations

import ssl
from time import time

from ...addresses import replica_address
from ...config import Config, ModelConfig, ReplicaConfig, ReplicaTlsConfig
from ...config.files import replica_tls_context
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
from ..telemetry.token_stats import TokenStats
from .model_sync import ModelSync, ReplicaContext, ServerKey

LOAD_REPORT_REQUEST = b"endpoint-load-metrics-format: JSON"


class Upstream(ReplicaContext):
    """How to reach a replica, and what is recorded of it."""

    def __init__(
        self, config: ReplicaConfig, model: str, pool: ConnectionPool, server_key: ServerKey, column: int
    ) -> None:
        super().__init__(config, model, server_key, column)
        self.load_report_header = b""  # of requests: asks for load reports
        self.last_response_at = 0.0  # when the head of an answer last came
        self.load: EngineLoad | None = None  # its last load report
        self.load_at = 0.0
        self.outcomes: dict[str, int] = {}  # attempts that did not end well, by outcome
        self.last_error = ""  # of the last attempt that failed: `HTTP 500`, or a reason
        self.last_error_at = 0.0
        self.tokens = TokenStats()
        self.pool = pool
        self.label = VIA_LINE + b"\r\nsteelyard-replica: " + config.name.encode()

    def count_outcome(self, outcome: str) -> None:
        """Not for attempts that ended well: those are the rest, and cost nothing to count."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def record_failure(self, outcome: str, error: str, now: float) -> None:
        self.count_outcome(outcome)
        self.last_error, self.last_error_at = error, now


class WorkerFleet(ModelSync):
    def __init__(self, proxy: Proxy) -> None:
        super().__init__(proxy.dispatcher)
        self._proxy = proxy
        self._created: dict[str, int] = {}
        self._tls_contexts: dict[ReplicaTlsConfig, ssl.SSLContext] = {}
        self._servers = SharedServers()
        proxy.intake.fleet_view = self.model_views

    def _check(self, config: Config) -> None:
        Router(config)
        TrustPolicy(config)
        contexts = {
            model.tls: replica_tls_context(model.tls)
            for model in config.models.values()
            if any(replica_address(r.url).tls for r in model.replicas)
        }
        self._tls_contexts.update(contexts)

    def _configure(self, config: Config, now: float) -> None:
        self._proxy.configure(config, now)

    def _model_added(self, name: str) -> None:
        self._created[name] = int(time())

    def _model_removed(self, name: str) -> None:
        self._created.pop(name, None)

    def update_members(self, message: MemberUpdate, now: float) -> None:
        model = self.models.get(message.model)
        wants_tls = any(replica_address(r.url).tls for r in message.added)
        if wants_tls and model is not None and model.tls not in self._tls_contexts:
            self._tls_contexts[model.tls] = replica_tls_context(model.tls)
        super().update_members(message, now)

    def _members_changed(self) -> None:
        """Which models are on servers with others."""
        placed = [name for name, model in self.models.items() if model.placement is not None]
        self._proxy.intake.placed_models = self._servers.beside(placed)
        self._proxy.intake.shared_models = self._servers.sharing | self._proxy.intake.placed_models

    def _configure_context(self, context: ReplicaContext, model: ModelConfig) -> None:
        super()._configure_context(context, model)
        assert isinstance(context, Upstream)
        orca = model.load_metrics.orca
        if orca is None:  # where memory is counted, each answer may say what it took
            orca = bool(context.config.device) or (bool(model.dialect) and make_dialect(model.dialect).sends_orca)
        context.load_report_header = LOAD_REPORT_REQUEST if orca else b""

    def _make_context(self, name: str, settings: ReplicaConfig, key: ServerKey, column: int) -> Upstream:
        endpoints = self._proxy.connection_pools
        endpoint = endpoints.get(key)
        if endpoint is None:
            address = replica_address(settings.url)
            settings_of_tls = key[2]
            tls = (lambda: self._tls_contexts[settings_of_tls]) if address.tls else None
            endpoint = endpoints[key] = ConnectionPool(self._proxy, address, tls, settings_of_tls.server_name)
        endpoint.references += 1
        self._servers.add(endpoint.address, name)
        return Upstream(settings, name, endpoint, key, column)

    def _release_context(self, context: ReplicaContext) -> None:
        assert isinstance(context, Upstream)
        context.pool.references -= 1
        self._servers.remove(context.pool.address, context.model)
        if not context.pool.references:
            context.pool.close()
            self._proxy.connection_pools.pop(context.server_key, None)

    def model_views(self) -> list[ServedModel]:
        balancer = self._proxy.balancer
        views = []
        for name in balancer.models:
            pool = balancer.pool(name)
            at_zero = not pool.members and self.models[name].runtime is not None
            views.append(ServedModel(name, len(pool.members), len(pool.replicas), self._created[name], at_zero))
        return views
