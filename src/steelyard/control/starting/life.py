"""The life of a started replica, as a table. A move that is not in it is an error of the caller."""

from __future__ import annotations

from enum import Enum

from ...core.errors import IllegalTransitionError


class Phase(Enum):
    ORDERED = "ordered"  # the runtime was asked, and has not answered
    STARTING = "starting"  # it runs, and is not ready (yet, or any more)
    READY = "ready"
    ASIDE = "aside"  # an operator drains it: it is neither counted nor stopped
    DRAINING = "draining"  # on its way out; may still come back
    STOPPING = "stopping"
    GONE = "gone"


class Turn(Enum):
    """What happens in it."""

    STARTED = "started"
    REFUSED = "refused"  # it was not started
    SEEN_READY = "seen ready"
    FELL = "fell"  # no longer ready
    SET_ASIDE = "set aside"
    TAKEN_BACK = "taken back"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    STOP = "stop"
    ENDED = "ended"


TABLE: dict[Phase, dict[Turn, Phase]] = {
    Phase.ORDERED: {
        Turn.STARTED: Phase.STARTING,
        Turn.REFUSED: Phase.GONE,
        Turn.STOP: Phase.STOPPING,  # when the runtime has answered
        Turn.ENDED: Phase.GONE,
    },
    Phase.STARTING: {
        Turn.SEEN_READY: Phase.READY,
        Turn.SET_ASIDE: Phase.ASIDE,
        Turn.DRAIN: Phase.DRAINING,
        Turn.STOP: Phase.STOPPING,
        Turn.ENDED: Phase.GONE,
    },
    Phase.READY: {
        Turn.FELL: Phase.STARTING,
        Turn.SET_ASIDE: Phase.ASIDE,
        Turn.DRAIN: Phase.DRAINING,
        Turn.STOP: Phase.STOPPING,
        Turn.ENDED: Phase.GONE,
    },
    Phase.ASIDE: {
        Turn.TAKEN_BACK: Phase.STARTING,
        Turn.DRAIN: Phase.DRAINING,
        Turn.STOP: Phase.STOPPING,
        Turn.ENDED: Phase.GONE,
    },
    Phase.DRAINING: {
        Turn.UNDRAIN: Phase.STARTING,  # readiness must be seen again
        Turn.STOP: Phase.STOPPING,
        Turn.ENDED: Phase.GONE,
    },
    Phase.STOPPING: {Turn.ENDED: Phase.GONE, Turn.REFUSED: Phase.GONE},
    Phase.GONE: {},
}

ALIVE = (Phase.ORDERED, Phase.STARTING, Phase.READY)
LEAVING = (Phase.DRAINING, Phase.STOPPING)


def next_phase(phase: Phase, turn: Turn) -> Phase:
    try:
        return TABLE[phase][turn]
    except KeyError:
        raise IllegalTransitionError(f"a started replica that is {phase.value} cannot be {turn.value}") from None
