"""How a replica stands in the eyes of the supervisor. The core's table says what follows from an event."""

from __future__ import annotations

from ...core.errors import IllegalTransitionError
from ...core.replica import Event, State, next_state

# What brings a worker that knows nothing to the same state.
_REPLAY_EVENTS = {
    State.LOADING: Event.LIVE,
    State.UNLOADED: Event.UNLOAD,
    State.READY: Event.LOADED,
    State.UNREACHABLE: Event.LOST,
    State.DRAINING: Event.DRAIN,
}

NOT_YET_READY = (State.STARTING, State.LOADING, State.UNREACHABLE)  # it should become ready


class ReplicaStatus:
    def __init__(self, now: float) -> None:
        self.state = State.STARTING
        self.since = now
        self.why = "not looked at yet"
        self.last_ready_at = now  # when it was last, or when it came
        self.not_ready_since = now  # since when it should become ready and is not, up or down in between

    def apply(self, event: Event, why: str, now: float) -> bool:
        """Did its state change?"""
        try:
            state = next_state(self.state, event)
        except IllegalTransitionError:  # an undrain of one that does not drain
            return False
        if state is self.state:
            if state is not State.DRAINING:
                self.why = why
            return False
        if self.state is State.READY:
            self.last_ready_at = now
        if self.state not in NOT_YET_READY:
            self.not_ready_since = now
        self.state, self.why, self.since = state, why, now
        return True

    def replay_event(self) -> Event | None:
        return _REPLAY_EVENTS.get(self.state)
