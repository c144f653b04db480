"""The replicas of each model: configured, discovered, registered, added by operators, or started by us."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from ...config import Config, ModelConfig, ReplicaConfig

ReplicaKey = tuple[str, str]  # model, replica id

CONFIGURED, DISCOVERED, REGISTERED, ADDED, STARTED = "config", "discovery", "registration", "admin", "runtime"
SOURCE_PRECEDENCE = (CONFIGURED, DISCOVERED, REGISTERED, ADDED, STARTED)  # for the same id, the first wins


class Member(NamedTuple):
    settings: ReplicaConfig
    source: str


class ReplicaRegistry:
    """Merges the sources into one list per model, with operators' changes, which outlive reloads but not restarts."""

    def __init__(self, config: Config) -> None:
        self._sources: dict[str, dict[str, dict[str, ReplicaConfig]]] = {source: {} for source in SOURCE_PRECEDENCE}
        self.weight_overrides: dict[ReplicaKey, float] = {}
        self.model_overrides: dict[str, dict[str, Any]] = {}  # policy, policy_options, concurrency
        self.set_config(config)

    def set_config(self, config: Config) -> None:
        self.config = config
        self._sources[CONFIGURED] = {name: _by_name(model.replicas) for name, model in config.models.items()}

    def set_source(self, source: str, model: str, replicas: Iterable[ReplicaConfig]) -> None:
        self._sources[source][model] = _by_name(replicas)

    def from_source(self, source: str, model: str) -> tuple[ReplicaConfig, ...]:
        return tuple(self._sources[source].get(model, {}).values())

    def find(self, model: str, id: str) -> Member | None:
        for source in SOURCE_PRECEDENCE:
            replica = self._sources[source].get(model, {}).get(id)
            if replica is not None:
                return Member(self._with_weight(model, replica), source)
        return None

    def members(self, model: str, config: Config | None = None) -> dict[str, Member]:
        settings = (config or self.config).models[model]
        found: dict[str, Member] = {}
        for source in SOURCE_PRECEDENCE:
            for replica in settings.replicas if source == CONFIGURED else self.from_source(source, model):
                found.setdefault(replica.name, Member(self._with_weight(model, replica), source))
        return found

    def _with_weight(self, model: str, replica: ReplicaConfig) -> ReplicaConfig:
        weight = self.weight_overrides.get((model, replica.name))
        return replica if weight is None else msgspec.structs.replace(replica, weight=weight)

    def effective_config(self, config: Config) -> Config:
        """As workers get it: with the replicas of all sources and the operators' changes."""
        models = {name: self.model(name, config) for name in config.models}
        return msgspec.structs.replace(config, models=models)

    def model(self, name: str, config: Config | None = None) -> ModelConfig:
        config = config or self.config
        replicas = tuple(member.settings for member in self.members(name, config).values())
        return msgspec.structs.replace(config.models[name], replicas=replicas, **self.model_overrides.get(name, {}))

    def prune(self, models: Mapping[str, object]) -> None:
        for named in self._sources.values():
            for model in [name for name in named if name not in models]:
                del named[model]
        self.model_overrides = {name: changes for name, changes in self.model_overrides.items() if name in models}
        self.weight_overrides = {key: weight for key, weight in self.weight_overrides.items() if key[0] in models}


def difference(
    before: Iterable[ReplicaConfig], after: Iterable[ReplicaConfig]
) -> tuple[tuple[str, ...], tuple[ReplicaConfig, ...]]:
    """The names that are gone, and the replicas that are new or changed."""
    old = {replica.name: replica for replica in before}
    new = {replica.name: replica for replica in after}
    gone = tuple(name for name in old if name not in new)
    return gone, tuple(replica for name, replica in new.items() if old.get(name) != replica)


def _by_name(replicas: Iterable[ReplicaConfig]) -> dict[str, ReplicaConfig]:
    found: dict[str, ReplicaConfig] = {}
    for replica in replicas:
        found.setdefault(replica.name, replica)
    return found
