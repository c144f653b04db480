"""Memory in the fleet: the accounts of devices and the placer of models, told what happens and asked what follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.replica import Event, State
from ...link.messages import OutOfMemory, ReplicaDemand, ToWorker, WorkerReport
from ...link.shared_ledger import SharedLedger
from ...protocols.load import EngineLoad
from ..health.probe import ReplicaKey
from ..memory import MemoryAccounting
from ..observability.views import Alarm, DeviceView, ModelMemoryView
from ..placement.controller import PlacementController
from ..placement.dependencies import PlacementDependencies, ReportedDemand
from ..placement.model_demand import DemandTracker

if TYPE_CHECKING:
    from .fleet import Fleet, Workers

DRAIN_TIMEOUT_SECONDS = 30.0  # seconds that what runs on a replica has to end, before it is not unloaded after all
DRAIN_POLL_SECONDS = 0.1  # seconds between two looks whether it has
EAGER_POLL_SECONDS = (
    5.0  # seconds in which workers are asked for each look; then what they report by themselves has to do
)


class MemoryManager:
    def __init__(self, fleet: Fleet, workers: Workers, book: SharedLedger) -> None:
        self._fleet = fleet
        self._workers = workers
        self._demands = DemandTracker()
        self.accounts = MemoryAccounting(book, self._broadcast, fleet.events.record)
        self.placer = PlacementController(
            PlacementDependencies(
                room=self.accounts,
                move=fleet.transition,
                see_anew=fleet.reprobe,
                drained=self.wait_drained,
                demands=self._demand,
                in_flight=self._in_flight,
                note=self._record,
                tell=self._broadcast,
            )
        )

    async def close(self) -> None:
        await self.placer.close()
        await self.accounts.close()

    def config_changed(self) -> None:
        """Another configuration is in force, or other replicas."""
        good = self._fleet.active_config.current
        self.accounts.members_changed(good.config, good.slots, good.devices, self._fleet.now())
        self.placer.members_changed(good.config)
        self._demands.prune(set(good.config.models))

    # ------------------------------------------------------------------ what happens

    def state_changed(self, key: ReplicaKey, state: State) -> None:
        self.accounts.state_changed(key, state, self._fleet.now())
        self.placer.state_changed(key, state)

    def load_reported(self, key: ReplicaKey, load: EngineLoad) -> None:
        self.accounts.load_reported(key, load, self._fleet.now())

    def worker_reported(self, report: WorkerReport) -> None:
        now = self._fleet.now()
        self.accounts.worker_reported(report, now)
        self._demands.update(self._workers.reports(), now)

    def model_requested(self, message: ReplicaDemand) -> None:
        self._demands.requested(message.model, self._fleet.now())
        self.placer.model_requested(message)

    def out_of_memory(self, message: OutOfMemory) -> None:
        self.accounts.out_of_memory(message, self._fleet.now())

    def worker_exited(self, row: int) -> None:
        self.accounts.worker_exited(row, self._fleet.now())

    def tick(self, now: float) -> None:
        self.accounts.tick(now)
        self.placer.tick(now)

    # ------------------------------------------------------------------ what is told

    def initial_state(self) -> list[ToWorker]:
        return [*self.accounts.initial_state(), *self.placer.initial_state()] if self._fleet.config.devices else []

    def views(self) -> tuple[tuple[DeviceView, ...], tuple[ModelMemoryView, ...]]:
        return self.accounts.views(self._workers.reports(), self._fleet.now())

    def alarms(self) -> list[Alarm]:
        return [*self.accounts.alarms(self._fleet.now()), *self.placer.alarms()]

    # ------------------------------------------------------------------ what the placer needs

    def _broadcast(self, message: ToWorker) -> None:
        self._fleet.flush()  # in the order in which it happened
        self._workers.broadcast(message)

    def _record(self, what: str, model: str, replica: str) -> None:
        self._fleet.events.record("placement", what, model=model, replica=replica, level=logging.INFO)

    def _demand(self) -> Mapping[str, ReportedDemand]:
        return self._demands.current(self._workers.reports(), self._fleet.now())

    def _in_flight(self) -> Mapping[ReplicaKey, int]:
        found: dict[ReplicaKey, int] = {}
        for report in self._workers.reports():
            for replica in report.replicas:
                if replica.in_flight:
                    key = (replica.model, replica.id)
                    found[key] = found.get(key, 0) + replica.in_flight
        return found

    async def wait_drained(self, key: ReplicaKey, seconds: float = DRAIN_TIMEOUT_SECONDS) -> bool:
        """Until no worker has a request there; each has heard by then that it gets none. False: some still run."""
        self._fleet.flush()
        began = self._fleet.now()
        while True:
            eager = self._fleet.now() < began + EAGER_POLL_SECONDS
            if eager or key not in self._in_flight():
                told = await self._workers.request_reports(1.0)
                if told and key not in self._in_flight():
                    return True
            if self._fleet.now() >= began + seconds or key not in self._fleet.statuses:
                return False
            await asyncio.sleep(DRAIN_POLL_SECONDS if eager else 5 * DRAIN_POLL_SECONDS)

    def request(self, key: ReplicaKey, event: Event) -> str:
        """An operator wants a model loaded or unloaded there. Why not, if it cannot be."""
        return self.placer.request(key, load=event is Event.LOAD)
