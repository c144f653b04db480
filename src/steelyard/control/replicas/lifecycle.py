"""The lifecycle of a managed replica, as a table; an illegal event raises."""

from __future__ import annotations

from enum import Enum

from ...core.errors import IllegalTransitionError


class ReplicaPhase(Enum):
    REQUESTED = "requested"  # the runtime has not answered yet
    STARTING = "starting"  # runs, and is not ready (yet, or any more)
    READY = "ready"
    CORDONED = "cordoned"  # drained by an operator: neither counted nor stopped
    DRAINING = "draining"  # leaving; may still return
    STOPPING = "stopping"
    GONE = "gone"


class PhaseEvent(Enum):
    STARTED = "started"
    START_FAILED = "start_failed"
    BECAME_READY = "became_ready"
    BECAME_UNREADY = "became_unready"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    STOP = "stop"
    ENDED = "ended"


_STOPS = {PhaseEvent.STOP: ReplicaPhase.STOPPING, PhaseEvent.ENDED: ReplicaPhase.GONE}
_LEAVES = {PhaseEvent.DRAIN: ReplicaPhase.DRAINING, **_STOPS}
TRANSITIONS: dict[ReplicaPhase, dict[PhaseEvent, ReplicaPhase]] = {
    ReplicaPhase.REQUESTED: {
        PhaseEvent.STARTED: ReplicaPhase.STARTING,
        PhaseEvent.START_FAILED: ReplicaPhase.GONE,
        **_STOPS,  # when the runtime has answered
    },
    ReplicaPhase.STARTING: {
        PhaseEvent.BECAME_READY: ReplicaPhase.READY,
        PhaseEvent.CORDON: ReplicaPhase.CORDONED,
        **_LEAVES,
    },
    ReplicaPhase.READY: {
        PhaseEvent.BECAME_UNREADY: ReplicaPhase.STARTING,
        PhaseEvent.CORDON: ReplicaPhase.CORDONED,
        **_LEAVES,
    },
    ReplicaPhase.CORDONED: {PhaseEvent.UNCORDON: ReplicaPhase.STARTING, **_LEAVES},
    ReplicaPhase.DRAINING: {PhaseEvent.UNDRAIN: ReplicaPhase.STARTING, **_STOPS},  # readiness must be seen again
    ReplicaPhase.STOPPING: {PhaseEvent.ENDED: ReplicaPhase.GONE, PhaseEvent.START_FAILED: ReplicaPhase.GONE},
    ReplicaPhase.GONE: {},
}

ALIVE_PHASES = (ReplicaPhase.REQUESTED, ReplicaPhase.STARTING, ReplicaPhase.READY)
TERMINATING_PHASES = (ReplicaPhase.DRAINING, ReplicaPhase.STOPPING)


def next_phase(phase: ReplicaPhase, event: PhaseEvent) -> ReplicaPhase:
    try:
        return TRANSITIONS[phase][event]
    except KeyError:
        raise IllegalTransitionError(f"a managed replica that is {phase.value} cannot take {event.value}") from None
