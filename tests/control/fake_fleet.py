"""What an observer may ask of the fleet, in a test: it remembers everything, and does what the test says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from steelyard.config import Config, ReplicaConfig
from steelyard.control.fleet.health import ReplicaStatus
from steelyard.control.fleet.observer import DRAIN_TIMEOUT_SECONDS, FleetControl, FleetObserver, ReplicaLoad
from steelyard.core.replica import Event, State
from steelyard.link.messages import Apply, ToWorker, WorkerReport

Key = tuple[str, str]


class Note(NamedTuple):
    kind: str
    what: str
    model: str
    replica: str
    level: int


class FakeFleet(FleetControl):
    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.clock = clock or (lambda: asyncio.get_running_loop().time())
        self.observers: list[FleetObserver] = []
        self.statuses: dict[Key, ReplicaStatus] = {}
        self.transitions: list[tuple[Key, Event, str]] = []
        self.reprobed: list[Key] = []
        self.managed: dict[str, tuple[ReplicaConfig, ...]] = {}
        self.sent: list[ToWorker] = []
        self.notes: list[Note] = []
        self.worker_reports: list[WorkerReport] = []
        self.running: dict[Key, int] = {}
        self.loads: dict[str, dict[str, ReplicaLoad]] = {}

    def now(self) -> float:
        return self.clock()

    def transition(self, key: Key, event: Event, reason: str) -> None:
        self.transitions.append((key, event, reason))
        status = self.statuses.get(key)
        if status is not None and status.apply(event, reason, self.now()):
            for observer in self.observers:
                observer.state_changed(key, status.state, self.now())

    def reprobe(self, key: Key) -> None:
        self.reprobed.append(key)

    def set_managed(self, model: str, replicas: Iterable[ReplicaConfig]) -> None:
        self.managed[model] = tuple(replicas)
        there = {(model, replica.name) for replica in self.managed[model]}
        for key in [key for key in self.statuses if key[0] == model and key not in there]:
            del self.statuses[key]
        for key in there:
            self.statuses.setdefault(key, ReplicaStatus(self.now()))

    def broadcast(self, message: ToWorker) -> None:
        self.sent.append(message)

    def record(self, kind: str, what: str, model: str = "", replica: str = "", level: int = logging.INFO) -> None:
        self.notes.append(Note(kind, what, model, replica, level))

    def reports(self) -> list[WorkerReport]:
        return self.worker_reports

    def in_flight(self) -> Mapping[Key, int]:
        return self.running

    def replica_loads(self, model: str) -> Mapping[str, ReplicaLoad]:
        return self.loads.get(model, {})

    def ready_counts(self) -> Mapping[str, int]:
        ready = [key for key, status in self.statuses.items() if status.state is State.READY]
        return {model: sum(key[0] == model for key in ready) for model, _ in ready}

    async def wait_drained(self, key: Key, seconds: float = DRAIN_TIMEOUT_SECONDS) -> bool:
        return not self.running.get(key)


def in_force(config: Config) -> Apply:
    """As the fleet tells its observers."""
    return Apply(1, config, {})
