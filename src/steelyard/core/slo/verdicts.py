"""What is promised of a model, and how each request stands to it: met or not, and whose fault that was.

A judgement is a small number, its place in JUDGEMENTS: a worker adds one to a list for each request that ends, and
everything else (windows, budgets, burn rates: slo_windows.py) is worked out from such lists elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..request import INFINITY

# Verdicts
MET: Final = "met"
LATE: Final = "late"  # answered, or given up by its client, after the time promised
FAILED: Final = "failed"
REFUSED: Final = "refused"
ABANDONED: Final = "abandoned"  # the client went away before the time promised was over
# Faults
CLIENT: Final = "client"  # never counts against a promise
GATEWAY: Final = "gateway"
REPLICA: Final = "replica"
OVERLOAD: Final = "overload"
# Kinds of promises
LATENCY: Final = "latency"  # good: answered in time; bad: late, failed, refused
AVAILABILITY: Final = "availability"  # good: answered at all; bad: failed, refused

SLO_VERDICTS: Final[tuple[tuple[str, str], ...]] = (
    (MET, ""),
    (LATE, CLIENT),
    (LATE, REPLICA),
    (LATE, OVERLOAD),
    (FAILED, CLIENT),
    (FAILED, GATEWAY),
    (FAILED, REPLICA),
    (FAILED, OVERLOAD),
    (REFUSED, CLIENT),
    (REFUSED, GATEWAY),
    (REFUSED, REPLICA),
    (REFUSED, OVERLOAD),
    (ABANDONED, CLIENT),
    (REFUSED, REPLICA),  # these four for a deadline: DEADLINES says which
    (REFUSED, REPLICA),
    (REFUSED, OVERLOAD),
    (REFUSED, OVERLOAD),
)
MET_INDEX: Final = 0
VERDICT_COUNT: Final = len(SLO_VERDICTS)
VERDICT_DEADLINES: Final[dict[int, str]] = {13: "total", 14: "first_byte", 15: "total", 16: "first_byte"}
VERDICT_INDEX: Final[dict[tuple[str, str], int]] = {
    judgement: index for index, judgement in enumerate(SLO_VERDICTS) if index not in VERDICT_DEADLINES
}
# By fault and deadline, as core.deadlines calls it.
REFUSED_BY_DEADLINE: Final[dict[tuple[str, str], int]] = {
    (SLO_VERDICTS[index][1], deadline): index for index, deadline in VERDICT_DEADLINES.items()
}

MAX_TENANTS: Final = 100  # counted one by one, for each model: clients may make up any number of names
OTHER_TENANTS: Final = "*"  # all the rest together

VerdictCounts = Sequence[int]  # of requests, by judgement


class SloTarget:
    """`latency` and `first_byte` in seconds, INFINITY: not promised; `percentile` and `availability` in percent,
    `availability` 0.0: not promised."""

    __slots__ = ("availability", "first_byte", "latency", "percentile")

    def __init__(
        self,
        latency: float = INFINITY,
        percentile: float = 99.0,
        availability: float = 0.0,
        first_byte: float = INFINITY,
    ) -> None:
        self.latency = latency
        self.percentile = percentile
        self.availability = availability
        self.first_byte = first_byte

    @property
    def timed(self) -> bool:
        """Is any time promised?"""
        return self.latency < INFINITY or self.first_byte < INFINITY

    def limit(self, streamed: bool) -> float:
        """Seconds that a whole answer may take. A stream lasts as long as there is something to say: where the time to
        its first byte is promised, that alone counts."""
        return INFINITY if streamed and self.first_byte < INFINITY else self.latency


NO_SLO: Final = SloTarget()


def verdict_of_response(
    promise: SloTarget,
    upload: float,
    queue: float,
    first_byte: float,
    total: float,
    streamed: bool,
    unread: float = 0.0,
) -> int:
    """Of a request that was answered. All in seconds: how long its body took to come, how long it waited for a replica,
    and, since its head had come, until the first and the last byte of the answer; how long that waited for its client
    to take it."""
    if streamed and first_byte > promise.first_byte:
        return VERDICT_INDEX[LATE, attribute_excess(promise.first_byte, upload, queue, first_byte)]
    limit = promise.limit(streamed)
    if total > limit:
        return VERDICT_INDEX[LATE, attribute_excess(limit, upload + unread, queue, total)]
    return MET_INDEX


def verdict_of_abandoned(
    promise: SloTarget,
    upload: float,
    queue: float,
    first_byte: float,
    total: float,
    streamed: bool,
    unread: float = 0.0,
) -> int:
    """Of a request whose client went away. `first_byte`: negative, if nothing of the answer had come."""
    if streamed and first_byte > promise.first_byte:
        return VERDICT_INDEX[LATE, attribute_excess(promise.first_byte, upload, queue, first_byte)]
    limit = promise.limit(streamed) if first_byte >= 0.0 else min(promise.latency, promise.first_byte)
    if total > limit:
        return VERDICT_INDEX[LATE, attribute_excess(limit, upload + unread, queue, total)]
    return VERDICT_INDEX[ABANDONED, CLIENT]


def attribute_excess(limit: float, upload: float, queue: float, total: float) -> str:
    """Whose fault it is that something took longer than `limit`: who, had they taken no time, would have kept it."""
    if total - upload <= limit:
        return CLIENT
    return OVERLOAD if total - upload - queue <= limit else REPLICA


def attribute_longest_stage(upload: float, queue: float, total: float) -> str:
    """Whose fault it is that something was not over when its time was up, where nobody knows how much longer it would
    have taken: who took most of the time."""
    replica = total - upload - queue
    if upload > queue and upload > replica:
        return CLIENT
    return OVERLOAD if queue > replica else REPLICA
