"""A replica and its lifecycle. Only a READY replica gets requests, or, in a panic, an EJECTED one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from .errors import IllegalTransitionError, OptionError
from .memory.ledger import Residency
from .outliers.ejection_reason import EjectionReason
from .request import INFINITY, Attempt
from .statistics.latency import WindowedQuantiles

if TYPE_CHECKING:
    from .outliers.probation import Probation

EXTERNAL_LOAD_READINGS = 3
MAX_EXTERNAL_LOAD_FACTOR = 4  # times the largest load of our own on any replica …
MIN_EXTERNAL_LOAD_CAP = 8  # … and a few more


class ExternalLoad:
    """Requests that neither this balancer nor its peers sent, concluded from what the replica reports."""

    __slots__ = ("_beyond", "expires")

    def __init__(self) -> None:
        self._beyond: list[float] = []  # by how much each of the last readings exceeded our own count
        self.expires = 0.0

    def observe(self, requests: float, own: int, lasting: float, now: float) -> None:
        """It reports `requests`, `own` of them ours and our peers', valid for `lasting` seconds."""
        if now >= self.expires:
            self._beyond.clear()
        self._beyond = [*self._beyond[1 - EXTERNAL_LOAD_READINGS :], max(0.0, requests - own)]
        self.expires = now + lasting

    def estimate(self, now: float) -> int:
        """As far as the last readings agree."""
        return int(min(self._beyond)) if now < self.expires and len(self._beyond) >= EXTERNAL_LOAD_READINGS else 0


def external_load_cap(largest: int) -> int:
    """The most that is believed, by the largest load of our own on any replica."""
    return MAX_EXTERNAL_LOAD_FACTOR * largest + MIN_EXTERNAL_LOAD_CAP


MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6


class State(Enum):
    STARTING = "starting"  # known, not seen yet
    LOADING = "loading"  # answers, but its model is not ready
    UNLOADED = "unloaded"  # its server could load the model, and was not asked to
    READY = "ready"
    EJECTED = "ejected"  # answers probes, but fails or crawls with real requests
    UNREACHABLE = "unreachable"
    DRAINING = "draining"  # finishes what it has, gets nothing new
    GONE = "gone"


class Event(Enum):
    """What is seen of a replica or wanted from it."""

    LIVE = "live"  # answers, readiness unknown or not given
    LOADED = "loaded"  # readiness confirmed
    LOST = "lost"  # does not answer
    EJECT = "eject"
    RESTORE = "restore"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    REMOVE = "remove"
    LOAD = "load"  # its server was asked to load the model
    UNLOAD = "unload"  # the model is being taken off its server, or is not there


# The whole lifecycle. A move that is not here is an error of the caller. An operator's drain outlives whatever probes
# see, and a good probe does not lift an ejection: only its time does, or a restart (live, then loaded).
TRANSITIONS: dict[State, dict[Event, State]] = {
    State.STARTING: {
        Event.LIVE: State.LOADING,
        Event.LOADED: State.READY,
        Event.LOST: State.UNREACHABLE,
        Event.DRAIN: State.DRAINING,
        Event.UNLOAD: State.UNLOADED,
        Event.REMOVE: State.GONE,
    },
    State.LOADING: {
        Event.LIVE: State.LOADING,
        Event.LOADED: State.READY,
        Event.LOST: State.UNREACHABLE,
        Event.DRAIN: State.DRAINING,
        Event.UNLOAD: State.UNLOADED,
        Event.REMOVE: State.GONE,
    },
    State.READY: {
        Event.LIVE: State.LOADING,
        Event.LOADED: State.READY,
        Event.LOST: State.UNREACHABLE,
        Event.EJECT: State.EJECTED,
        Event.DRAIN: State.DRAINING,
        Event.UNLOAD: State.UNLOADED,
        Event.REMOVE: State.GONE,
    },
    State.EJECTED: {
        Event.LIVE: State.LOADING,
        Event.LOADED: State.EJECTED,
        Event.LOST: State.UNREACHABLE,
        Event.RESTORE: State.READY,
        Event.DRAIN: State.DRAINING,
        Event.UNLOAD: State.UNLOADED,
        Event.REMOVE: State.GONE,
    },
    State.UNREACHABLE: {
        Event.LIVE: State.LOADING,
        Event.LOADED: State.READY,
        Event.LOST: State.UNREACHABLE,
        Event.DRAIN: State.DRAINING,
        Event.UNLOAD: State.UNLOADED,
        Event.REMOVE: State.GONE,
    },
    State.DRAINING: {
        Event.LIVE: State.DRAINING,
        Event.LOADED: State.DRAINING,
        Event.LOST: State.DRAINING,
        Event.DRAIN: State.DRAINING,
        Event.UNDRAIN: State.LOADING,  # readiness must be seen again before traffic
        Event.UNLOAD: State.DRAINING,
        Event.REMOVE: State.GONE,
    },
    State.UNLOADED: {
        # Whatever probes see of it, it gets nothing before it was asked to load.
        Event.LIVE: State.UNLOADED,
        Event.LOADED: State.UNLOADED,
        Event.LOST: State.UNLOADED,
        Event.LOAD: State.LOADING,
        Event.UNLOAD: State.UNLOADED,
        Event.DRAIN: State.DRAINING,
        Event.REMOVE: State.GONE,
    },
    State.GONE: {},
}


def next_state(state: State, event: Event) -> State:
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        legal = ", ".join(e.value for e in TRANSITIONS[state]) or "nothing"
        raise IllegalTransitionError(
            f"a replica that is {state.value} cannot {event.value}; possible: {legal}"
        ) from None


class Replica:
    """One server of one model. Policies read its numbers and keep theirs in `notes`; `context` is the driver's."""

    __slots__ = (
        "answered_at",
        "attained_at",
        "attained_service",
        "consecutive_failures",
        "context",
        "cost",
        "dispatched",
        "effective_weight",
        "ejected_at",
        "ejected_until",
        "ejection",
        "ejection_backoff",
        "ejection_count",
        "external_load",
        "external_readings",
        "failed",
        "failure_penalty",
        "failures",
        "has_been_ready",
        "id",
        "in_flight",
        "kv_tokens",
        "last_failure",
        "last_finish",
        "latency",
        "limit",
        "load",
        "notes",
        "oldest",
        "oldest_since",
        "order",
        "other_load",
        "outstanding_work",
        "peer_load_at",
        "probation",
        "ready_since",
        "residency",
        "running_attempts",
        "same_failures",
        "slot",
        "slow_since",
        "slow_start_factor",
        "slowness",
        "slowness_filter",
        "state",
        "successes",
        "suspended",
        "unanswered",
        "unanswered_since",
        "unverified",
        "warm",
        "weight",
        "zone",
    )

    def __init__(self, id: str, weight: float = 1.0, zone: str = "", state: State = State.STARTING) -> None:
        check_weight(id, weight)
        self.id = id
        self.weight = weight
        self.zone = zone
        self.state = state
        self.effective_weight = weight  # lower during slow start
        self.slow_start_factor = 1.0  # weight / effective weight
        self.order = 0  # position in the pool, for a stable scan
        self.slot = -1  # in the pool's index of loads, if it has one
        self.limit = INFINITY  # requests it takes at once
        self.unverified = False  # it takes one request at a time until one succeeds
        self.in_flight = 0  # ours
        self.other_load = 0  # of other balancers, as last heard, and external
        self.peer_load_at = 0.0  # when other balancers were heard of
        self.external_load = 0  # part of `other_load` that no balancer sent
        self.external_readings: ExternalLoad | None = None
        self.load = 0  # in_flight + other_load
        self.attained_service = 0.0  # work done by a request that ran here all along (estimator/batching_curve.py)
        self.attained_at = 0.0  # when that was brought up to date
        self.outstanding_work = 0.0  # seconds of work we have there, each request as if alone
        self.running_attempts: dict[Attempt, None] = {}  # oldest first
        self.oldest: Attempt | None = None  # the first of them
        # It has surely run since: where requests queue in the replica, not before the last finish.
        self.oldest_since = 0.0
        self.last_finish = 0.0
        self.slowness = 1.0  # seconds here for one second on a typical replica
        self.slowness_filter: Any = None  # the estimator's notes behind `slowness`
        self.latency = WindowedQuantiles()
        self.kv_tokens = 0.0  # that its cache holds, as an engine says; 0.0: not known
        self.warm: dict[str, None] | None = None  # keys it holds warm, oldest first; None: not tracked
        self.dispatched = 0  # attempts sent there, ever
        self.failed = 0  # of those, failed
        self.successes = 0  # since the last look at success rates
        self.failures = 0
        self.consecutive_failures = 0
        self.last_failure = ""  # how the last failed attempt ended, in words
        self.same_failures = 0  # failures that ended so, one after the other
        self.answered_at = 0.0  # when an answer last came, whole, even an error
        self.unanswered = 0  # attempts in a row without one, though it was due
        self.unanswered_since = 0.0  # when the first of them was sent
        self.probation: Probation | None = None  # it has to show that it answers
        self.suspended = False  # it gets no requests just now, for that reason
        self.failure_penalty = 0  # failures in a row, forgiven one a second; each halves the share
        self.ejection_backoff = 0  # recent ejections: the next lasts longer
        self.ejection_count = 0
        self.ejected_at = 0.0
        self.ejected_until = 0.0
        self.ejection: EjectionReason | None = None  # why, of the last one
        self.slow_since = INFINITY
        self.ready_since = 0.0
        self.has_been_ready = state is State.READY
        self.notes: Any = None  # the policy's
        self.context: Any = None  # the driver's
        self.residency: Residency | None = None  # on a device whose memory is counted
        self.cost = 0.0  # of the request being decided on: a policy's scratch

    def __repr__(self) -> str:
        return f"<Replica {self.id} {self.state.value} load={self.load}>"


def check_weight(id: str, weight: object) -> None:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        wanted = f"a positive number, from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
        raise OptionError(f"replica {id!r}: weight must be {wanted}, not {weight!r}")


def weighted_choice(tied: Sequence[Replica], random_value: float) -> Replica:
    """One of several equally good replicas, by weight. `random_value`: uniform in [0, 1)."""
    if len(tied) == 1:
        return tied[0]
    total = 0.0
    for replica in tied:
        total += replica.effective_weight
    left = random_value * total
    for replica in tied:
        left -= replica.effective_weight
        if left < 0.0:
            return replica
    return tied[-1]
