"""The state of a replica as the supervisor sees it; the core's transition table decides."""

from __future__ import annotations

from ...core.errors import IllegalTransitionError
from ...core.replica import Event, State, next_state

# The event that brings a new worker's replica to the same state.
_REPLAY_EVENTS = {
    State.LOADING: Event.LIVE,
    State.UNLOADED: Event.UNLOAD,
    State.READY: Event.LOADED,
    State.UNREACHABLE: Event.LOST,
    State.DRAINING: Event.DRAIN,
}

NOT_YET_READY = (State.STARTING, State.LOADING, State.UNREACHABLE)  # expected to become ready


class ReplicaStatus:
    def __init__(self, now: float) -> None:
        self.state = State.STARTING
        self.since = now
        self.why = "not looked at yet"
        self.last_ready_at = now  # or when it was added
        self.not_ready_since = now  # since when it has been in NOT_YET_READY

    def apply(self, event: Event, why: str, now: float) -> bool:
        """Returns whether the state changed."""
        try:
            state = next_state(self.state, event)
        except IllegalTransitionError:  # an undrain of a replica that is not draining
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
