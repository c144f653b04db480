"""The SLO of a model, and the verdict on each request: met or not, and whose fault that was.

A verdict is an index of SLO_VERDICTS. Workers count requests by verdict; burn_rate.py works out the rest from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..request import INFINITY

# Verdicts
MET: Final = "met"
LATE: Final = "late"  # answered, or given up by its client, after the target
FAILED: Final = "failed"
REFUSED: Final = "refused"
ABANDONED: Final = "abandoned"  # the client disconnected within the target
# Faults
CLIENT: Final = "client"  # never counts against an SLO
GATEWAY: Final = "gateway"
REPLICA: Final = "replica"
OVERLOAD: Final = "overload"
# Kinds of objectives
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
    (REFUSED, REPLICA),  # these four for a deadline: VERDICT_DEADLINES
    (REFUSED, REPLICA),
    (REFUSED, OVERLOAD),
    (REFUSED, OVERLOAD),
)
MET_INDEX: Final = 0
VERDICT_COUNT: Final = len(SLO_VERDICTS)
VERDICT_DEADLINES: Final[dict[int, str]] = {13: "total", 14: "first_byte", 15: "total", 16: "first_byte"}
VERDICT_INDEX: Final[dict[tuple[str, str], int]] = {
    verdict: index for index, verdict in enumerate(SLO_VERDICTS) if index not in VERDICT_DEADLINES
}
ABANDONED_INDEX: Final = VERDICT_INDEX[ABANDONED, CLIENT]
# By fault and binding deadline.
REFUSED_BY_DEADLINE: Final[dict[tuple[str, str], int]] = {
    (SLO_VERDICTS[index][1], deadline): index for index, deadline in VERDICT_DEADLINES.items()
}

MAX_TENANTS: Final = 100  # counted one by one of each model: clients may make up names
OTHER_TENANTS: Final = "*"  # all the rest together

VerdictCounts = Sequence[int]  # of requests, by verdict


class SloTarget:
    """`latency`, `first_byte` and `per_token` in seconds, INFINITY: no target; `percentile` and `availability` in
    percent, `availability` 0.0: no target."""

    __slots__ = ("availability", "first_byte", "latency", "per_token", "percentile")

    def __init__(
        self,
        latency: float = INFINITY,
        percentile: float = 99.0,
        availability: float = 0.0,
        first_byte: float = INFINITY,
        per_token: float = INFINITY,
    ) -> None:
        self.latency = latency
        self.percentile = percentile
        self.availability = availability
        self.first_byte = first_byte
        self.per_token = per_token  # the mean, of the tokens after the first of a stream

    @property
    def timed(self) -> bool:
        return self.latency < INFINITY or self.first_byte < INFINITY or self.per_token < INFINITY

    def limit(self, streamed: bool) -> float:
        """Seconds that a whole answer may take. Of a stream only its first byte and its tokens count, where these have
        a target."""
        return INFINITY if streamed and min(self.first_byte, self.per_token) < INFINITY else self.latency


NO_SLO: Final = SloTarget()


def verdict_of(
    target: SloTarget,
    upload: float,
    queue: float,
    first_byte: float,
    total: float,
    streamed: bool,
    unread: float = 0.0,
    in_time: int = MET_INDEX,
    per_token: float = 0.0,
) -> int:
    """Of a request that was answered, or abandoned by its client (`in_time`: ABANDONED_INDEX).

    In seconds: until its body had come; waiting for a replica; from its head to the first byte of the answer (negative:
    there was none) and to the last; how long the answer waited for its client to take it; and the mean for a token
    after the first, without that wait.
    """
    if streamed and first_byte > target.first_byte:
        return VERDICT_INDEX[LATE, attribute_excess(target.first_byte, upload, queue, first_byte)]
    limit = target.limit(streamed) if first_byte >= 0.0 else min(target.latency, target.first_byte)
    if total > limit:
        return VERDICT_INDEX[LATE, attribute_excess(limit, upload + unread, queue, total)]
    if streamed and per_token > target.per_token:
        return VERDICT_INDEX[LATE, REPLICA]  # it is sent at once, so nothing else can be slow
    return in_time


def attribute_excess(limit: float, upload: float, queue: float, total: float) -> str:
    """Whose fault it is that a request took longer than `limit`: without their time it would not have."""
    if total - upload <= limit:
        return CLIENT
    return OVERLOAD if total - upload - queue <= limit else REPLICA


def attribute_longest_stage(upload: float, queue: float, total: float) -> str:
    """The fault of a request that was not over in time: the stage that took longest."""
    replica = total - upload - queue
    if upload > queue and upload > replica:
        return CLIENT
    return OVERLOAD if queue > replica else REPLICA
