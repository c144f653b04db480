"""The servers of models with `placement`, and the copy of each model there, loaded or not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from ...addresses import replica_address
from ...config import ANY_MODEL, Config, PlacementConfig
from ...core.replica import State
from ...protocols.repository import repository_of
from ..fleet.registry import ReplicaKey
from ..health.http_client import TlsContexts
from ..health.probe import ProbeTarget
from ..memory import MemoryAccounting
from .repository_client import RepositoryClient


class CopyPhase(Enum):
    UNKNOWN = "unknown"  # until the server's index is read
    ABSENT = "absent"
    RESERVED = "reserved"  # memory is reserved, the server not asked yet
    LOADING = "loading"
    RESIDENT = "resident"
    DRAINING = "draining"  # no new requests; running ones finish
    UNLOADING = "unloading"


class ManagedCopy:
    """A model on a server, loaded or not: a replica, to the fleet."""

    def __init__(
        self, target: ProbeTarget, settings: PlacementConfig, host: Host, repository: RepositoryClient, now: float
    ) -> None:
        self.target = target
        self.settings = settings
        self.host = host
        self.repository = repository
        self.phase = CopyPhase.UNKNOWN
        self.since = now
        self.reserved = False  # its bytes are in the ledger
        self.reserved_bytes = 0
        self.replica_state = State.STARTING  # as the fleet has it
        self.over_budget_since = float("inf")  # since when it exceeds its device's budget, having been found loaded
        self.loaded_by_us = False
        self.load_ordered_at: float | None = None  # since when a job is going to load it
        self.removed = False  # no longer in the configuration

    @property
    def key(self) -> ReplicaKey:
        return self.target.key

    @property
    def model(self) -> str:
        return self.target.model

    def set_phase(self, phase: CopyPhase, now: float) -> None:
        if phase is not self.phase:
            self.phase, self.since = phase, now

    def release(self, memory: MemoryAccounting) -> None:
        if self.reserved:
            self.reserved, self.reserved_bytes = False, 0
            memory.release(self.key)


class Host:
    """A server process. It does one job at a time."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.device = ""
        self.copies: dict[str, ManagedCopy] = {}  # by model
        self.came = now
        self.asked = False  # its index was polled, successfully or not
        self.known = False  # it answers, and its index is current
        self.problem = ""  # why not
        self.failures = 0  # polls in a row without an answer
        self.failing_since = now
        self.refuses_since = float("inf")  # since when it refuses connections
        self.last_poll_at = 0.0
        self.next_poll_at = now
        self.poll_task: asyncio.Task[None] | None = None
        self.discard_poll = False  # the result of the running poll is outdated
        self.busy = False  # a load or an unload is under way

    @property
    def repositories(self) -> list[RepositoryClient]:
        """One for each kind of index, nearly always a single one."""
        return list({copy.repository.kind: copy.repository for copy in self.copies.values()}.values())

    @property
    def is_unknown(self) -> bool:
        return any(copy.phase is CopyPhase.UNKNOWN for copy in self.copies.values())

    def poll_by(self, when: float) -> None:
        self.next_poll_at = min(self.next_poll_at, when)


class HostChanges(NamedTuple):
    gone: list[ManagedCopy]
    fresh: list[ManagedCopy]
    empty: list[Host]  # servers without a copy


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
        return any(not host.asked and host.came > since for host in self.hosts.values())

    def set_config(self, config: Config, now: float) -> HostChanges:
        wanted = dict(_configured_targets(config))
        self.models = {model for model, _ in wanted}
        gone = [copy for key, copy in self.copies.items() if not _is_unchanged(copy, wanted.get(key))]
        for copy in gone:
            del self.copies[copy.key]
            del copy.host.copies[copy.model]
        fresh = []
        for key, (target, settings) in wanted.items():
            if key in self.copies:
                self._update(self.copies[key], target, settings)
            elif (new := self._add(target, settings, now)) is not None:
                fresh.append(new)
        empty = [host for host in self.hosts.values() if not host.copies]
        for host in empty:
            del self.hosts[host.name]
        return HostChanges(gone, fresh, empty)

    def _update(self, copy: ManagedCopy, target: ProbeTarget, settings: PlacementConfig) -> None:
        if copy.target != target:
            copy.repository = self._repository(target, settings)
        copy.target, copy.settings = target, settings

    def _add(self, target: ProbeTarget, settings: PlacementConfig, now: float) -> ManagedCopy | None:
        """None: the model is listed twice for one server."""
        name = str(replica_address(target.settings.url))  # one address, one process
        host = self.hosts.get(name) or Host(name, now)
        if target.model in host.copies:
            return None
        self.hosts[name] = host
        host.device = target.settings.device
        copy = ManagedCopy(target, settings, host, self._repository(target, settings), now)
        host.copies[target.model] = self.copies[target.key] = copy
        return copy

    def _repository(self, target: ProbeTarget, settings: PlacementConfig) -> RepositoryClient:
        return RepositoryClient(target, repository_of(settings.load_api, target.dialect), self._contexts)


def _configured_targets(config: Config) -> Iterator[tuple[ReplicaKey, tuple[ProbeTarget, PlacementConfig]]]:
    for name, model in config.models.items():
        if model.placement is None or name == ANY_MODEL:
            continue
        for replica in model.replicas:
            target = ProbeTarget(name, replica, model.dialect, model.health, model.load_metrics, model.tls)
            yield target.key, (target, model.placement)


def _is_unchanged(copy: ManagedCopy, wanted: tuple[ProbeTarget, PlacementConfig] | None) -> bool:
    if wanted is None:
        return False
    target, settings = wanted
    same = copy.target.is_same_server(target) and copy.target.settings.device == target.settings.device
    return same and copy.repository.kind == repository_of(settings.load_api, target.dialect).name
