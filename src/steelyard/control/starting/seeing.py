"""What follows for a started replica from its state in the fleet. Pure."""

from __future__ import annotations

from ...core.replica import State
from .life import PhaseEvent, ReplicaPhase
from .started import ManagedReplica


def apply_fleet_state(replica: ManagedReplica, state: State, now: float) -> float | None:
    """Seconds of its cold start, if it ends here. An ejected one is as good as ready; one that is draining and not by
    us, an operator took out."""
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
