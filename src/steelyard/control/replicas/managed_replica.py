"""A replica that was started or adopted: its phase and what is known of it."""

from __future__ import annotations

import asyncio

from ...config import ReplicaConfig
from ...core.replica import State
from ...runtimes import Instance, InstancePhase, Runtime
from ..fleet.registry import ReplicaKey
from .lifecycle import ALIVE_PHASES, PhaseEvent, ReplicaPhase, next_phase

COUNTED_STATES = (State.LOADING, State.READY, State.EJECTED, State.DRAINING)  # the ledger counts its bytes
UNREACHABLE_SECONDS = 30.0  # then the ledger stops counting it; see memory/device_replicas.py
LATE_AGE_RATIO, MIN_READY_SECONDS = 0.1, 0.1  # part of its age, seconds
UNMEASURED_AGE_RATIO = 1.0  # part of its age, where starts were never measured: half of it may be over
PROVEN_AFTER_SECONDS = 30.0  # of readiness: then its start succeeded
# A replica that was ready and has not answered for so long is hung. One that answers and is not ready may be loading,
# and one that was never ready may open its port late: both have `start_timeout`.
HUNG_AFTER_SECONDS = 60.0


class ManagedReplica:
    def __init__(self, instance: Instance, runtime: Runtime, number: int, now: float, *, adopted: bool = False) -> None:
        self.instance = instance
        self.runtime = runtime
        self.number = number
        self.adopted = adopted
        self.phase = ReplicaPhase.STARTING if adopted else ReplicaPhase.REQUESTED
        self.began = now - (instance.age if adopted else 0.0)
        self.since = now  # in this phase
        self.was_ready = False  # ever
        self.proven = False  # it was ready for PROVEN_AFTER_SECONDS
        self.drained_ready = False  # it was ready when its drain began
        self.member = False  # published to the fleet
        self.charged_until = now  # its cost is counted until then
        self.ready_by: float | None = None  # when it should be ready
        self.operation: asyncio.Task[None] | None = None  # its start or stop
        self._up = False
        self._lost: float | None = None
        self._silent: float | None = None  # since when it does not answer

    @property
    def key(self) -> ReplicaKey:
        return self.instance.model, self.instance.id

    @property
    def id(self) -> str:
        return self.instance.id

    @property
    def alive(self) -> bool:
        return self.phase in ALIVE_PHASES

    @property
    def is_starting(self) -> bool:
        """For the first time."""
        return self.phase in (ReplicaPhase.REQUESTED, ReplicaPhase.STARTING) and not self.was_ready

    @property
    def has_ended(self) -> bool:
        return self.instance.phase is InstancePhase.ENDED

    @property
    def settings(self) -> ReplicaConfig:
        return ReplicaConfig(url=self.instance.url, id=self.id, device=self.instance.device)

    def transition(self, event: PhaseEvent, now: float) -> None:
        before, self.phase = self.phase, next_phase(self.phase, event)
        self.since = now
        if event is PhaseEvent.DRAIN:
            self.drained_ready = before is ReplicaPhase.READY
        if event is PhaseEvent.BECAME_READY:
            self.was_ready = True
        if event in (PhaseEvent.BECAME_READY, PhaseEvent.BECAME_UNREADY):
            self.ready_by = None

    @property
    def on_trial(self) -> bool:
        return self.alive and not self.proven

    def is_steady(self, now: float) -> bool:
        return self.phase is ReplicaPhase.READY and now - self.since >= PROVEN_AFTER_SECONDS

    def is_overdue(self, now: float, timeout: float) -> bool:
        return self.phase in (ReplicaPhase.REQUESTED, ReplicaPhase.STARTING) and now - self.since >= timeout

    def is_hung(self, now: float) -> bool:
        was_ready = self.was_ready and self.phase is ReplicaPhase.STARTING
        return was_ready and self._silent is not None and now - self._silent >= HUNG_AFTER_SECONDS

    def ready_in(self, now: float, measured: bool = True) -> float | None:
        """Seconds; a late one is expected after a further part of its age. None: not expected."""
        if self.ready_by is None or self.phase not in (ReplicaPhase.REQUESTED, ReplicaPhase.STARTING):
            return None
        if not measured and now > self.ready_by:
            return max(UNMEASURED_AGE_RATIO * (now - self.since), MIN_READY_SECONDS)
        return max(self.ready_by - now, LATE_AGE_RATIO * (now - self.since), MIN_READY_SECONDS)

    def fleet_state_changed(self, state: State, now: float) -> None:
        if state is not State.UNREACHABLE:
            self._silent = None
        elif self._silent is None:
            self._silent = now
        if state in COUNTED_STATES:
            self._up, self._lost = True, None
        elif self._lost is None:
            self._lost = now

    def is_counted(self, now: float) -> bool:
        """By the memory ledger."""
        return self._up and (self._lost is None or now - self._lost < UNREACHABLE_SECONDS)


class ReplicaUsage:
    """What a model's managed replicas have cost."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cost = 0.0
        self.starts = self.stops = self.crashes = 0

    def charge(self, replica: ManagedReplica, price: float, now: float) -> None:
        """For its time until now; `price`: per hour."""
        seconds = max(0.0, now - replica.charged_until)
        replica.charged_until = now
        self.seconds += seconds
        self.cost += seconds / 3600.0 * price


def apply_fleet_state(replica: ManagedReplica, state: State, now: float) -> float | None:
    """Returns the seconds of its cold start, if that ends here. A drain that is not ours is an operator's."""
    if state is State.DRAINING:
        if replica.phase in (ReplicaPhase.STARTING, ReplicaPhase.READY):
            replica.transition(PhaseEvent.CORDON, now)
        return None
    if replica.phase is ReplicaPhase.CORDONED:
        replica.transition(PhaseEvent.UNCORDON, now)
    ready = state in (State.READY, State.EJECTED)
    if ready and replica.phase is ReplicaPhase.STARTING:
        first = not replica.was_ready and not replica.adopted
        replica.transition(PhaseEvent.BECAME_READY, now)
        return now - replica.began if first else None
    if not ready and replica.phase is ReplicaPhase.READY:
        replica.transition(PhaseEvent.BECAME_UNREADY, now)
    return None
