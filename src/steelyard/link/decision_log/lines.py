"""The lines of the decision log: what the gateway writes, and `steelyard explain` and `simulate --replay` read.

JSON, one object a line; `kind` tells which. Times are seconds; `at` is of CLOCK_MONOTONIC, the same for all workers of
a machine until it starts anew. Never headers, bodies, or what a session is called: they carry secrets.
"""

from __future__ import annotations

from typing import Final

import msgspec


class LoggedCandidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replica that could have taken the request, as it stood then."""

    id: str
    in_flight: int  # ours and others'
    work: float  # seconds of estimated work there
    slowness: float  # seconds here for one on a typical replica
    expected: float  # seconds in which the request would be done there, as estimated
    weight: float = 1.0  # in force
    score: float | None = None  # what the policy compares, least first; None: it compares nothing
    failures: int = 0  # in a row, of late


class ExcludedReplica(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replica that could not take the request, and why."""

    id: str
    reason: str  # its state, or: full, deadline, insufficient_memory, failed_before
    detail: str = ""  # `4 of 4`, `12 s more`, the device


class LoggedChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One time that a place was looked for."""

    after: float  # seconds since it arrived
    chosen: str  # replica; empty: to wait is better
    candidate_count: int  # how many could have taken it
    candidates: tuple[LoggedCandidate, ...]  # these, or some of them: always the chosen, and those with the least score
    waiting: int = 0  # requests in the queue
    excluded: tuple[ExcludedReplica, ...] = ()  # those that could not, or some of them
    excluded_count: int = 0  # how many could not


class LoggedAttempt(msgspec.Struct, frozen=True, omit_defaults=True):
    replica: str
    after: float  # seconds since it arrived
    predicted: float  # seconds
    concurrent: int = 0  # requests that were there when it came, ours and others'
    seconds: float | None = None  # it took; None: not known, another was faster or the client left
    hedged: bool = False
    outcome: str = ""  # empty: it answered; else a label of core/outcome.py, or `lost`: another was faster


class DecisionLine(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="request"):
    """A request, written when it is over."""

    id: str  # x-request-id
    time: str  # when it arrived, ISO 8601
    at: float  # when it arrived
    worker: int
    model: str
    policy: str
    verdict: str  # met, late, failed, refused, abandoned
    seconds: float  # from its arrival to the last byte of the answer
    estimate: float  # seconds on a typical replica, as estimated when it arrived
    tenant: str = ""
    fault: str = ""
    reason: str = ""
    status: int = 0
    call: str = ""  # kind of request, as the dialect tells it
    features: tuple[float, ...] = ()
    key: str = ""  # a hash of its session or prefix
    priority: int = 0
    deadline: float | None = None  # of the whole answer, seconds after its arrival
    first_byte_deadline: float | None = None  # of its first byte, seconds after its arrival
    binding_deadline: str = ""  # which of the two it was judged by when it came: `total`, `first_byte`
    expected: float = 0.0  # seconds that were predicted then, to the end or to the first byte of the answer
    idempotent: bool = True
    waited: float = 0.0  # seconds in line, until the first attempt
    first_byte: float = 0.0  # seconds since it arrived
    upload: float = 0.0  # seconds that its body took to come, before it could be decided on
    choices: tuple[LoggedChoice, ...] = ()  # the first and the last ones, if there were many
    choice_count: int = 0  # how many there were
    attempts: tuple[LoggedAttempt, ...] = ()
    score_meaning: str = ""  # of a policy of the user's own; Steelyard's are known
    dropped: int = 0  # lines before this one that were lost because the disk did not keep up


class FleetMember(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    state: str
    weight: float = 1.0


class FleetLine(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="fleet"):
    """How a model is served, whenever that has changed, and at the beginning of a file."""

    time: str
    at: float
    worker: int
    workers: int
    model: str
    policy: str
    sample_rate: float  # share of the requests that is written down
    replicas: tuple[FleetMember, ...]
    policy_options: dict[str, object] = {}
    concurrency: int | str = "unlimited"
    max_queue: int = 1024
    queue_timeout: float = 30.0
    options: dict[str, object] = {}  # how retries, hedging, ejection and slow start are set, where not as by default
    dropped: int = 0  # as in a request's line


FLEET_PREFIX: Final = b'{"kind":"fleet",'
_RENAMED_FLEET_FIELDS: Final = (
    (b'"sample":', b'"sample_rate":'),
    (b'"queue":', b'"max_queue":'),
    (b'"max_wait":', b'"queue_timeout":'),
)
# In JSON a quote inside a string is escaped, so these match keys and whole values only.
_RENAMED_REQUEST_WORDS: Final = (
    (b'"looks":', b'"choices":'),
    (b'"looked":', b'"choice_count":'),
    (b'"of":', b'"candidate_count":'),
    (b'"excluded_of":', b'"excluded_count":'),
    (b'"beside":', b'"concurrent":'),
    (b'"judged_by":', b'"binding_deadline":'),
    (b'"outcome":"late"', b'"outcome":"deadline_exceeded"'),
    (b'"outcome":"broken"', b'"outcome":"connection_lost"'),
    (b'"outcome":"impatient"', b'"outcome":"client_deadline_exceeded"'),
    (b'"verdict":"left"', b'"verdict":"abandoned"'),
    (b'"reason":"memory"', b'"reason":"insufficient_memory"'),
    (b'"reason":"waited"', b'"reason":"queue_timeout"'),
    (b'"reason":"displaced"', b'"reason":"preempted"'),
)


def current_line(raw: bytes) -> bytes:
    """A line of an earlier version in the words of this one."""
    if raw.startswith(FLEET_PREFIX):
        for old, new in _RENAMED_FLEET_FIELDS:
            raw = raw.replace(old, new, 1)
        return raw
    for old, new in _RENAMED_REQUEST_WORDS:
        raw = raw.replace(old, new)
    return raw


LogLine = DecisionLine | FleetLine
