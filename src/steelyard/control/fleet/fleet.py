"""The fleet: which replicas there are (`FleetMembers`), the state of each (`FleetHealth`), what workers are told and
report (`WorkerSync`), and the observers, which act through `FleetControl`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from ...config import Config, ReplicaConfig
from ...link.messages import OutOfMemory, ReplicaDemand, ReplicaFailure, ReservationsAdopted, ToWorker, WorkerReport
from ..observability.event_log import EventLog
from .health import FleetHealth
from .members import FleetMembers
from .observer import FleetObserver
from .registrations import Registrations
from .registry import STARTED
from .worker_sync import Workers, WorkerSync


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class Fleet:
    def __init__(self, config: Config, clock: Callable[[], float] = loop_time) -> None:
        self.events = EventLog()
        self.observers: list[FleetObserver] = []  # in the order in which they are notified
        self.sync = WorkerSync()
        self.members = FleetMembers(config, self.sync, self.events)
        self.health = FleetHealth(
            self.sync, self.events, self.observers, clock, lambda key: self.registrations.replica_added(key)
        )
        self.registrations = Registrations(self.members, self.health, self.sync, self.events)
        self.config_lock = asyncio.Lock()  # one change of the configuration at a time
        # The rest of FleetControl.
        self.now = clock
        self.transition, self.reprobe = self.health.transition, self.health.reprobe
        self.ready_counts, self.wait_drained = self.health.ready_counts, self.health.wait_drained
        self.reports, self.in_flight = self.sync.reports, self.sync.in_flight
        self.replica_loads = self.sync.replica_loads

    def start(self, workers: Workers, observers: Iterable[FleetObserver]) -> None:
        self.sync.connect(workers)
        self.observers += observers
        self.health.start()
        self.members.start(self._members_changed)
        self._members_changed()
        self.members.start_discovery()

    async def quiesce(self) -> None:
        """No new replicas, found or started. Probes go on: requests may wait for a replica."""
        for observer in self.observers:
            observer.stopping()
        await self.members.discoverer.close()

    async def stop(self) -> None:
        """Started replicas run on: `ReplicaController.stop_all` ends them."""
        await self.quiesce()
        self.members.close()
        for observer in reversed(self.observers):
            await observer.stopped()
        await self.health.close()

    @property
    def config(self) -> Config:
        return self.members.config

    async def configure(self, config: Config) -> str:
        """In all workers or in none. Returns why it is refused, or an empty string."""
        effective = self.members.registry.effective_config(config)
        self.members.rolling_out = True
        try:
            self.health.set_targets(self.config, effective)
            self.sync.flush()  # before workers know the new replicas: what was seen of the old is not theirs
            problem = await self.members.roll_out(config, effective, self.health.broadcast_config)
            if not problem:
                self.registrations.prune_models()
        finally:
            self.members.rolling_out = False
            self._members_changed(configured=True)
            self.members.apply_pending()
            for observer in self.observers:
                observer.config_changed(self.config, self.now())
        return problem

    def _members_changed(self, *, configured: bool = False) -> None:
        self.health.set_targets(self.config, configured=configured)
        for observer in self.observers:
            observer.members_changed(self.members.active_config.current, self.now())

    def worker_reported(self, report: WorkerReport) -> None:
        self.health.record_ejections()
        for observer in self.observers:
            observer.worker_reported(report, self.now())

    def worker_notice(self, message: ReplicaFailure | ReplicaDemand | OutOfMemory | ReservationsAdopted) -> None:
        if isinstance(message, ReplicaFailure):
            self.health.worker_failed(message)
            return
        for observer in self.observers:
            if isinstance(message, ReplicaDemand):
                observer.model_requested(message, self.now())
            elif isinstance(message, ReservationsAdopted):
                observer.reservations_adopted(message)
            else:
                observer.out_of_memory(message, self.now())

    def worker_exited(self, row: int, *, adoptable: bool = False) -> None:
        for observer in self.observers:
            observer.worker_exited(row, self.now(), adoptable=adoptable)

    def tick(self) -> None:
        self.registrations.tick(self.now())
        for observer in self.observers:
            observer.tick(self.now())

    def initial_state(self) -> list[ToWorker]:
        """For a new worker, after the configuration."""
        messages = [message for observer in self.observers for message in observer.initial_state()]
        return [self.health.initial_state(), *messages]

    def set_managed(self, model: str, replicas: Iterable[ReplicaConfig]) -> None:
        self.members.registry.set_source(STARTED, model, replicas)
        self.members.refresh(model, at_once=True)

    def broadcast(self, message: ToWorker) -> None:
        self.sync.broadcast(message)

    def record(self, kind: str, what: str, model: str = "", replica: str = "", level: int = logging.INFO) -> None:
        self.events.record(kind, what, model=model, replica=replica, level=level)
