"""The seam between the fleet and its observers: memory, placement, started replicas, autoscaling, SLOs.

The fleet tells each `FleetObserver` what happens, in a fixed order; an observer acts through `FleetControl` alone, so
each is built and tested without the fleet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from ...config import Config, ReplicaConfig
from ...core.replica import Event, State
from ...link.messages import Apply, OutOfMemory, ReplicaDemand, ReservationsAdopted, ToWorker, WorkerReport
from ...protocols.load import EngineLoad
from ..observability.views import Alarm
from .registry import ReplicaKey

DRAIN_TIMEOUT_SECONDS = 30.0  # for requests in flight; after that, a replica is not unloaded after all


class FleetObserver:
    """An observer overrides what concerns it."""

    def config_changed(self, config: Config, now: float) -> None:
        """A reload ended, applied or refused. Follows `members_changed`; not called when only the members change."""

    def members_changed(self, active: Apply, now: float) -> None:
        """The configuration or the replicas in force changed; also called once at start."""

    def state_changed(self, key: ReplicaKey, state: State, now: float) -> None:
        """A replica changed state. The change is recorded and queued for the workers by now."""

    def load_reported(self, key: ReplicaKey, load: EngineLoad, now: float) -> None:
        """A replica's metrics were scraped."""

    def worker_reported(self, report: WorkerReport, now: float) -> None:
        """A worker sent its periodic report."""

    def worker_exited(self, row: int, now: float, *, adoptable: bool = False) -> None:
        """The process with this row of the shared ledger died. Not called while the supervisor stops.
        `adoptable`: it was the balancer process, whose requests run on, and another is started."""

    def reservations_adopted(self, message: ReservationsAdopted) -> None:
        """Requests that a dead balancer process had sent run on, and count for its successor."""

    def model_requested(self, message: ReplicaDemand, now: float) -> None:
        """Requests wait in a worker, and no replica of the model is ready."""

    def out_of_memory(self, message: OutOfMemory, now: float) -> None:
        """A request failed because its device had no memory left."""

    def tick(self, now: float) -> None:
        """Called twice a second."""

    def stopping(self) -> None:
        """The gateway stops soon: begins nothing new. Events still follow."""

    async def stopped(self) -> None:
        """No event follows: ends what still runs."""

    def initial_state(self) -> Iterable[ToWorker]:
        """Messages for a worker that has just started."""
        return ()

    def alarms(self, now: float) -> Iterable[Alarm]:
        """Everything an operator should know now."""
        return ()


class ReplicaLoad(NamedTuple):
    """A replica's load as last reported by all workers together."""

    in_flight: int = 0
    slowness: float = 1.0
    cache: float | None = None
    ejected: bool = False


class FleetControl(Protocol):
    """What an observer may ask of the fleet."""

    def now(self) -> float:
        """The event loop's clock."""

    def transition(self, key: ReplicaKey, event: Event, reason: str) -> None:
        """Applies an event to a replica and tells all workers."""

    def reprobe(self, key: ReplicaKey) -> None:
        """Discards earlier probe results: the replica is ready once a probe that starts now finds it so."""

    def set_managed(self, model: str, replicas: Iterable[ReplicaConfig]) -> None:
        """Makes these the started replicas of a model, at once: they are probed, and workers learn of them."""

    def broadcast(self, message: ToWorker) -> None:
        """Sends to all workers, after every change queued so far."""

    def record(self, kind: str, what: str, model: str = "", replica: str = "", level: int = logging.INFO) -> None:
        """Adds to the event log."""

    def reports(self) -> list[WorkerReport]:
        """The latest report of each worker."""

    def in_flight(self) -> Mapping[ReplicaKey, int]:
        """Requests in flight, summed over workers; replicas without any are missing."""

    def replica_loads(self, model: str) -> Mapping[str, ReplicaLoad]:
        """By replica id."""

    def ready_counts(self) -> Mapping[str, int]:
        """Ready replicas of each model, those started by others included."""

    async def wait_drained(self, key: ReplicaKey, seconds: float = DRAIN_TIMEOUT_SECONDS) -> bool:
        """Returns when no worker has a request there and each knows it gets no more. False: timed out."""
