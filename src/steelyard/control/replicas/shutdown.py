"""How replicas leave: drained, then stopped. One that only drains may come back."""

from __future__ import annotations

from collections.abc import Callable

from ...config import RuntimeConfig, RuntimeSection
from ...core.replica import Event
from ..fleet.observer import ReplicaLoad
from .context import ControllerContext
from .lifecycle import TERMINATING_PHASES, PhaseEvent, ReplicaPhase
from .managed_replica import ManagedReplica
from .start_requests import ADOPTED_READY_SECONDS

IDLE_STOP_DELAY_SECONDS = (
    2.0  # seconds until one without requests is stopped, when its model is gone: nobody counts them any more
)
MAX_SHORT_DRAIN_SECONDS = (
    30.0  # seconds, at the most, for requests on one that is given up; or where nobody counts them
)


class ReplicaShutdown:
    """`gone` hears of each when it is."""

    def __init__(self, model: str, tools: ControllerContext, gone: Callable[[ManagedReplica], None]) -> None:
        self.settings: RuntimeConfig = RuntimeSection()  # the last in force: how long to wait
        self.impatient = False  # told to end at once
        self._model = model
        self._tools = tools
        self._fleet = tools.fleet
        self._gone = gone

    @property
    def patience(self) -> float:
        """Seconds for one that is stopped."""
        return 0.0 if self.impatient else float(self.settings.stop_timeout)

    def drain_and_stop(self, replica: ManagedReplica, why: str, *, given_up: bool = False) -> None:
        """Drained, where the fleet knows it, and stopped. Nothing hurries that, unless it is `given_up`."""
        now = self._tools.clock()
        if replica.phase in TERMINATING_PHASES:
            return
        self._fleet.record("scaling", f"leaves: {why}", *replica.key)
        if replica.phase is ReplicaPhase.REQUESTED:
            replica.transition(PhaseEvent.STOP, now)  # as soon as its start was answered
        else:
            replica.transition(PhaseEvent.DRAIN if replica.member else PhaseEvent.STOP, now)
            if replica.member:
                self._fleet.transition(replica.key, Event.DRAIN, why)
            self._end(
                replica, min(MAX_SHORT_DRAIN_SECONDS, self._longest) if given_up else self._longest, self._rest(replica)
            )

    def stop_now(self, replica: ManagedReplica) -> None:
        """All ends."""
        if replica.phase is ReplicaPhase.STOPPING:
            return
        ordered = replica.phase is ReplicaPhase.REQUESTED
        replica.transition(PhaseEvent.STOP, self._tools.clock())
        if not ordered:
            self._tools.operations.cancel(replica)
            self.stop(replica)

    def kill(self, replica: ManagedReplica) -> None:
        """One that is being stopped, without waiting any longer."""
        if replica.phase is ReplicaPhase.STOPPING and replica.operation is not None:
            self._tools.operations.kill(replica)

    def stop(self, replica: ManagedReplica) -> None:
        """One that does not drain."""
        self._end(replica, 0.0, 0.0)

    def cancel_drain(self, replica: ManagedReplica, now: float) -> None:
        """It is not stopped yet, and needed after all."""
        self._tools.operations.cancel(replica)
        replica.transition(PhaseEvent.UNDRAIN, now)
        replica.ready_by = now + ADOPTED_READY_SECONDS
        self._fleet.transition(replica.key, Event.UNDRAIN, "it is needed after all")

    def _end(self, replica: ManagedReplica, drain: float, rest: float) -> None:
        self._tools.operations.stop(replica, drain, rest, self.patience, self._gone)

    @property
    def _longest(self) -> float:
        """Seconds for requests in flight: what the operator allows, or as long as the gateway lets a request last."""
        drain = self.settings.drain_timeout
        return float(self._tools.config.timeouts.total if drain is None else drain)

    def _rest(self, replica: ManagedReplica) -> float:
        """When a model is gone, nobody counts its requests any more."""
        if self._model in self._tools.config.models:
            return 0.0
        worth = self._fleet.replica_loads(self._model).get(replica.id, ReplicaLoad(in_flight=1))
        return (
            (MAX_SHORT_DRAIN_SECONDS if self.settings.drain_timeout is None else float(self.settings.drain_timeout))
            if worth.in_flight
            else IDLE_STOP_DELAY_SECONDS
        )
