"""Which replicas belong to the fleet, and which configuration is in force.

Sources (the configuration, discovery, leases, operators, the runtime) fill the registry, which is put in force for one
model at a time, in small batches. A reload replaces everything, in all workers or in none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...addresses import Address, replica_address
from ...config import Config, ModelConfig, ReplicaConfig
from ...config.rules.admin import gateway_address_error
from ...link.messages import MemberUpdate, ToWorker
from ..discovery.manager import DiscoveryManager
from ..errors import SharedMemoryFullError
from ..observability.event_log import EventLog
from .active_config import ActiveConfig, ColumnTable
from .registry import DISCOVERED, Member, ReplicaKey, ReplicaRegistry
from .worker_sync import WorkerSync

MEMBERSHIP_BATCH_SECONDS = 0.05  # between two changes of membership: replicas that appear together are one change


class FleetMembers:
    def __init__(self, config: Config, sync: WorkerSync, events: EventLog) -> None:
        self.registry = ReplicaRegistry(config)
        self.reset_active_config()
        self.admin_address: Address | None = None  # where the admin API listens, once it does
        self.capacity_problem = ""  # in words, when replicas do not fit in the shared memory ledger
        self.rolling_out = False  # changes from sources wait until the reload is over
        self._sync = sync
        self._events = events
        self._pending_models: set[str] = set()  # whose replicas may have changed
        self._batch_timer: asyncio.TimerHandle | None = None

    def reset_active_config(self) -> None:
        """From the registry, before anything is in force."""
        self.active_config = ActiveConfig(self.registry.effective_config(self.registry.config))

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called after every change of membership outside a reload."""
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self.discoverer = DiscoveryManager(self.discovered)

    def close(self) -> None:
        if self._batch_timer is not None:
            self._batch_timer.cancel()

    @property
    def config(self) -> Config:
        """In force, with the replicas of all sources and the operators' changes."""
        return self.active_config.current.config

    @property
    def columns(self) -> ColumnTable:
        return self.active_config.columns.table

    def by_key(self) -> dict[ReplicaKey, Member]:
        return {(m, id): member for m in self.config.models for id, member in self.registry.members(m).items()}

    async def roll_out(self, config: Config, effective: Config, broadcast: Callable[[ToWorker], list[str]]) -> str:
        """Returns why it is refused, or an empty string. `effective`: as workers get it."""
        problem = await self.active_config.roll_out(effective, broadcast)
        if not problem:
            self.registry.set_config(config)
            self.start_discovery()
            self.registry.prune(config.models)
        return problem

    def start_discovery(self) -> None:
        models = self.registry.config.models
        self.discoverer.set_sources({name: model.discovery for name, model in models.items() if model.discovery})

    def discovered(self, model: str, replicas: tuple[ReplicaConfig, ...]) -> None:
        """Addresses of the gateway itself are left out."""
        accepted = []
        for replica in replicas:
            problem = gateway_address_error(replica_address(replica.url), self.config, self.admin_address)
            if problem:
                what = f"discovery names {replica.url}, which is not taken: {problem}"
                self._events.record("replica", what, model=model, level=logging.WARNING)
            else:
                accepted.append(replica)
        self.registry.set_source(DISCOVERED, model, accepted)
        self.refresh(model)

    def refresh(self, model: str, *, at_once: bool = False) -> None:
        """The replicas of this model may have changed. Applied at once, unless a batch is open."""
        self._pending_models.add(model)
        if not self.rolling_out and (at_once or self._batch_timer is None):
            self.apply_pending()

    def apply_pending(self) -> None:
        pending, self._pending_models = self._pending_models, set()
        for model in pending:
            self._apply_model(model)
        if pending and self._batch_timer is None:
            self._batch_timer = self._loop.call_later(MEMBERSHIP_BATCH_SECONDS, self._batch_over)

    def _batch_over(self) -> None:
        self._batch_timer = None
        if not self.rolling_out:
            self.apply_pending()

    def _apply_model(self, model: str) -> None:
        before = self.config.models.get(model)
        if before is None:
            return
        replicas = self.registry.model(model).replicas  # and nothing else: all else needs the workers' consent
        try:
            message = self.active_config.set_replicas(model, replicas)
        except SharedMemoryFullError as problem:
            self.capacity_problem = str(problem)
            self._events.record("replica", str(problem), model=model, level=logging.ERROR)
            return
        if message is None:
            return
        self.capacity_problem = ""
        self._sync.broadcast(message)
        self._changed()
        self._record(model, before, message)

    def _record(self, model: str, before: ModelConfig, message: MemberUpdate) -> None:
        known = {replica.name: replica for replica in before.replicas}
        for id in message.removed:
            self._events.record("replica", "removed", model=model, replica=id)
        for replica in message.added:
            old = known.get(replica.name)
            what = f"added: {replica.url}" if old is None else f"changed: {_difference(old, replica)}"
            self._events.record("replica", what, model=model, replica=replica.name)


def _difference(before: ReplicaConfig, after: ReplicaConfig) -> str:
    """`weight 1 → 2`."""
    values = [(name, getattr(before, name), getattr(after, name)) for name in ReplicaConfig.__struct_fields__]
    return ", ".join(f"{name} {_shown(old)} → {_shown(new)}" for name, old, new in values if old != new)


def _shown(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else value or "none"
