"""The lines of the decision log, for `steelyard explain` and `simulate --replay`.

JSON, one object a line, by `kind`. Times are seconds; `at` is CLOCK_MONOTONIC, the same for all workers until the
machine restarts. Never headers, bodies or session names: they carry secrets.
"""

from __future__ import annotations

from typing import Final

import msgspec


class LoggedCandidate(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    in_flight: int  # ours and others'
    work: float  # seconds of estimated work there
    slowness: float  # seconds here for one on a typical replica
    expected: float  # seconds until the request would be done there
    weight: float = 1.0  # in force
    score: float | None = None  # of the policy, least first; None: it has none
    failures: int = 0  # in a row


class ExcludedReplica(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replica that could not take the request, and why."""

    id: str
    reason: str  # its state, or: full, on_probation, deadline, insufficient_memory, failed_before
    message: str = ""  # `4 of 4`, `12 s more`, the device


class LoggedChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One search for a replica."""

    after: float  # seconds since it arrived
    chosen: str  # replica; empty: to wait is better
    candidate_count: int  # how many could have taken it
    candidates: tuple[LoggedCandidate, ...]  # or some: always the chosen, and the least scores
    waiting: int = 0  # requests in the queue
    excluded: tuple[ExcludedReplica, ...] = ()  # or some of them
    excluded_count: int = 0


class LoggedAttempt(msgspec.Struct, frozen=True, omit_defaults=True):
    replica: str
    after: float  # seconds since it arrived
    predicted: float  # seconds
    concurrent: int = 0  # requests already there, ours and others'
    seconds: float | None = None  # None: another was faster, or the client left
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
    binding_deadline: str = ""  # the one it was admitted by: `total`, `first_byte`
    expected: float = 0.0  # seconds predicted then for that deadline
    idempotent: bool = True
    waited: float = 0.0  # seconds in the queue, until the first attempt
    first_byte: float = 0.0  # seconds since it arrived
    upload: float = 0.0  # seconds of its body, before the decision
    choices: tuple[LoggedChoice, ...] = ()  # the first and the last, of many
    choice_count: int = 0
    attempts: tuple[LoggedAttempt, ...] = ()
    prompt_bytes: int = 0  # of text, for policies that read prompts
    prompt_extra_tokens: float = 0.0  # of what is no text in it
    prompt_tokens: int = 0  # as the engine counted them; 0: it did not say
    output_tokens: int = 0  # the same, or as counted
    cached_tokens: int = 0  # of the prompt, found in the engine's cache
    score_meaning: str = ""  # of a user's own policy
    dropped: int = 0  # lines lost before this one, as the disk was slow


class FleetMember(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    state: str
    weight: float = 1.0


class FleetLine(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="fleet"):
    """How a model is served, at the beginning of a file and after each change."""

    time: str
    at: float
    worker: int
    workers: int
    model: str
    policy: str
    sample_rate: float  # share of requests that are logged
    replicas: tuple[FleetMember, ...]
    policy_options: dict[str, object] = {}
    concurrency: int | str = "unlimited"
    max_queue: int = 1024
    queue_timeout: float = 30.0
    options: dict[str, object] = {}  # of retries, hedging, ejection and slow start, unless default
    dropped: int = 0


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
    (b'"detail":', b'"message":'),
    (b'"outcome":"late"', b'"outcome":"deadline_exceeded"'),
    (b'"outcome":"broken"', b'"outcome":"connection_lost"'),
    (b'"outcome":"impatient"', b'"outcome":"client_deadline_exceeded"'),
    (b'"verdict":"left"', b'"verdict":"abandoned"'),
    (b'"reason":"memory"', b'"reason":"insufficient_memory"'),
    (b'"reason":"waited"', b'"reason":"queue_timeout"'),
    (b'"reason":"displaced"', b'"reason":"preempted"'),
)


def current_line(raw: bytes) -> bytes:
    """A line of an earlier version, renamed."""
    if raw.startswith(FLEET_PREFIX):
        for old, new in _RENAMED_FLEET_FIELDS:
            raw = raw.replace(old, new, 1)
        return raw
    for old, new in _RENAMED_REQUEST_WORDS:
        raw = raw.replace(old, new)
    return raw
