"""Who is where: the servers of all models with `placement`, as the configuration has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...config import ANY_MODEL, Config, PlacementConfig
from ...protocols.repository import repository_of
from ..probing.target import ProbeTarget, ReplicaKey
from ..probing.tls import TlsContexts
from .desk import RepositoryClient
from .host import Host, ManagedCopy, host_name


class HostChanges(NamedTuple):
    gone: list[ManagedCopy]
    fresh: list[ManagedCopy]
    empty: list[Host]  # servers without any copy now


class Hosts:
    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.copies: dict[ReplicaKey, ManagedCopy] = {}
        self.models: set[str] = set()
        self._contexts = TlsContexts()

    def find(self, server: str, model: str) -> ManagedCopy | None:
        host = self.hosts.get(server)
        return host.copies.get(model) if host is not None else None

    def has_unpolled(self, since: float) -> bool:
        """Is there one that came after that and was not looked at yet?"""
        return any(not host.asked and host.came > since for host in self.hosts.values())

    def follow(self, config: Config, now: float) -> HostChanges:
        wanted = dict(_configured_targets(config))
        self.models = {model for model, _ in wanted}
        gone = [copy for key, copy in self.copies.items() if not _is_unchanged(copy, wanted.get(key))]
        for copy in gone:
            del self.copies[copy.key]
            del copy.host.copies[copy.model]
        fresh = []
        for key, (target, settings) in wanted.items():
            if key in self.copies:
                self._renew(self.copies[key], target, settings)
            elif (new := self._settle(target, settings, now)) is not None:
                fresh.append(new)
        empty = [host for host in self.hosts.values() if not host.copies]
        for host in empty:
            del self.hosts[host.name]
        return HostChanges(gone, fresh, empty)

    def _renew(self, copy: ManagedCopy, target: ProbeTarget, settings: PlacementConfig) -> None:
        if copy.target != target:
            copy.repository = self._desk(target, settings)
        copy.target, copy.settings = target, settings

    def _settle(self, target: ProbeTarget, settings: PlacementConfig, now: float) -> ManagedCopy | None:
        """None: the same model is listed twice for one server; it is there once."""
        name = host_name(target)
        host = self.hosts.get(name) or Host(name, now)
        if target.model in host.copies:
            return None
        self.hosts[name] = host
        host.device = target.settings.device
        copy = ManagedCopy(target, settings, host, self._desk(target, settings), now)
        host.copies[target.model] = self.copies[target.key] = copy
        return copy

    def _desk(self, target: ProbeTarget, settings: PlacementConfig) -> RepositoryClient:
        return RepositoryClient(target, repository_of(settings.through, target.dialect), self._contexts)


def _configured_targets(config: Config) -> Iterator[tuple[ReplicaKey, tuple[ProbeTarget, PlacementConfig]]]:
    for name, model in config.models.items():
        if model.placement is None or name == ANY_MODEL:
            continue
        for replica in model.replicas:
            target = ProbeTarget(name, replica, model.dialect, model.health, model.load, model.tls)
            yield target.key, (target, model.placement)


def _is_unchanged(copy: ManagedCopy, wanted: tuple[ProbeTarget, PlacementConfig] | None) -> bool:
    """Is what is known of it true of what is wanted?"""
    if wanted is None:
        return False
    target, settings = wanted
    same = copy.target.is_same_server(target) and copy.target.settings.device == target.settings.device
    return same and copy.repository.kind == repository_of(settings.through, target.dialect).name
