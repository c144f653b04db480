"""What follows for a started replica from its state in the fleet. Pure."""

from __future__ import annotations

from ...core.replica import State
from .life import Phase, Turn
from .started import Started


def see(replica: Started, state: State, now: float) -> float | None:
    """Seconds of its cold start, if it ends here. An ejected one is as good as ready; one that is draining and not by
    us, an operator took out."""
    if state is State.DRAINING:
        if replica.phase in (Phase.STARTING, Phase.READY):
            replica.take(Turn.SET_ASIDE, now)
        return None
    if replica.phase is Phase.ASIDE:
        replica.take(Turn.TAKEN_BACK, now)
    ready = state in (State.READY, State.EJECTED)
    if ready and replica.phase is Phase.STARTING:
        first = not replica.was_ready and not replica.adopted
        replica.take(Turn.SEEN_READY, now)
        return now - replica.began if first else None
    if not ready and replica.phase is Phase.READY:
        replica.take(Turn.FELL, now)
    return None
