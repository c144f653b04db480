"""The configuration put into force: models and replicas in the balancer, and the ways to them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from random import Random
from time import time

from ..addresses import replica_address
from ..config import Config, ModelConfig, ReplicaConfig, ReplicaTls
from ..core.balancer import Balancer
from ..core.decision import Decision
from ..protocols.base import ModelView
from .carrier import Carrier
from .endpoint import Endpoint
from .forwarding import VIA, Trust
from .neighbours import Neighbours
from .routing import Router

NO_SLOT = -1


class Way:
    """What a replica's `context` holds: how to reach it, and what its answers are labelled with."""

    __slots__ = ("config", "endpoint", "key", "label", "slot")

    def __init__(self, config: ReplicaConfig, endpoint: Endpoint, key: tuple[object, ...], slot: int) -> None:
        self.config = config
        self.endpoint = endpoint
        self.key = key
        self.slot = slot
        self.label = VIA + b"\r\nsteelyard-replica: " + config.name.encode()


class Fleet:
    def __init__(self, carrier: Carrier, neighbours: Neighbours | None = None) -> None:
        self._carrier = carrier
        self._neighbours = neighbours
        self._models: dict[str, ModelConfig] = {}
        self._created: dict[str, int] = {}
        self._contexts: dict[ReplicaTls, ssl.SSLContext] = {}
        carrier.fleet_view = self.view

    def apply(self, config: Config, slots: Mapping[str, Mapping[str, int]], now: float) -> None:
        """Put this configuration into force. Raises before anything is changed, or not at all."""
        Router(config)
        Trust(config.trusted)
        for name, model in config.models.items():
            if model != self._models.get(name):
                _try(model, now)
        contexts = {
            model.tls: replica_context(model.tls)
            for model in config.models.values()
            if any(replica_address(r.url).tls for r in model.replicas)
        }
        self._contexts.update(contexts)
        carrier, balancer = self._carrier, self._carrier.balancer
        decisions: list[Decision] = []
        for name in [name for name in self._models if name not in config.models]:
            for replica in list(balancer.pool(name).replicas.values()):
                self._let_go(replica.context)
            decisions += balancer.remove_model(name, now=now)
            self._created.pop(name, None)
        carrier.configure(config)
        for name, model in config.models.items():
            before = self._models.get(name)
            if before is None:
                balancer.add_model(name, model.policy, model.pool_options(), model.policy_options, now)
                self._created[name] = int(time())
            else:
                if (before.policy, before.policy_options) != (model.policy, model.policy_options):
                    decisions += balancer.set_policy(name, model.policy, model.policy_options, now=now)
                if before.pool_options() != model.pool_options():
                    decisions += balancer.set_options(name, model.pool_options(), now=now)
            decisions += self._replicas(name, model, slots.get(name, {}), now)
        if self._neighbours is not None:
            self._neighbours.know_lines(slots)
        self._models = dict(config.models)
        carrier.carry_out(decisions, now)

    def _replicas(self, name: str, model: ModelConfig, slots: Mapping[str, int], now: float) -> list[Decision]:
        balancer = self._carrier.balancer
        pool = balancer.pool(name)
        wanted = {replica.name: replica for replica in model.replicas}
        decisions: list[Decision] = []
        for id, replica in list(pool.replicas.items()):
            if id not in wanted or _key(wanted[id], model) != replica.context.key:
                self._let_go(replica.context)
                decisions += balancer.remove_replica(id, name, now=now)
        for id, settings in wanted.items():
            known = pool.replicas.get(id)
            if known is not None:
                known.zone = settings.zone
                if known.weight != settings.weight:
                    balancer.set_weight(id, settings.weight, name, now=now)
                continue
            way = self._way(settings, model, slots.get(id, NO_SLOT))
            decisions += balancer.add_replica(
                id, name, weight=settings.weight, zone=settings.zone, context=way, now=now
            )
            if self._neighbours is not None and way.slot != NO_SLOT:
                self._neighbours.know(pool.replicas[id], name, way.slot)
        return decisions

    def _way(self, settings: ReplicaConfig, model: ModelConfig, slot: int) -> Way:
        key = _key(settings, model)
        endpoints = self._carrier.endpoints
        endpoint = endpoints.get(key)
        if endpoint is None:
            address = replica_address(settings.url)
            tls = (lambda tls=model.tls: self._contexts[tls]) if address.tls else None
            endpoint = endpoints[key] = Endpoint(self._carrier, address, tls, model.tls.server_name)
        endpoint.users += 1
        return Way(settings, endpoint, key, slot)

    def _let_go(self, way: Way) -> None:
        way.endpoint.users -= 1
        if not way.endpoint.users:
            way.endpoint.close()
            self._carrier.endpoints.pop(way.key, None)
        if self._neighbours is not None:
            self._neighbours.forget(way.slot)

    def view(self) -> list[ModelView]:
        """The fleet as dialects show it to clients."""
        balancer = self._carrier.balancer
        pools = [(name, balancer.pool(name)) for name in balancer.models]
        return [ModelView(name, len(p.members), len(p.replicas), self._created[name]) for name, p in pools]


def _try(model: ModelConfig, now: float) -> None:
    """Somewhere else first: a policy of the user's own may raise whatever it likes, whenever it likes."""
    trial = Balancer(Random(0))
    trial.add_model("", model.policy, model.pool_options(), model.policy_options, now)
    for replica in model.replicas:
        trial.add_replica(replica.name, weight=replica.weight, now=now)


def _key(settings: ReplicaConfig, model: ModelConfig) -> tuple[object, ...]:
    return (settings.url, model.tls)


def replica_context(tls: ReplicaTls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca or None)
    if tls.certificate:
        context.load_cert_chain(tls.certificate, tls.key)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
