"""What is kept of a minute (later: of an hour or a day): requests of one tenant by judgement, and how long they took.

Latency is counted by model, not by tenant: it is in the slices of the tenant "" (who named none), for all tenants of
the model together, and empty in all others. A slice without counts says that the gateway ran then and nothing came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isinf, nan
from typing import Final, TypeVar

import msgspec

from ...core.request import INFINITY
from ...core.slo.verdicts import (
    ABANDONED,
    CLIENT,
    FAILED,
    LATE,
    MET,
    REFUSED,
    SLO_VERDICTS,
    VERDICT_DEADLINES,
    SloTarget,
)
from ...core.statistics.histogram import BUCKET_GROWTH, MIN_BUCKET_SECONDS, quantile_bucket

MINUTE_SECONDS: Final = 60
HOUR_SECONDS: Final = 3600
DAY_SECONDS: Final = 86400
STEP_SECONDS: Final = (MINUTE_SECONDS, HOUR_SECONDS, DAY_SECONDS)
COARSENING_FACTOR: Final = (
    5  # buckets of core.histogram in one of ours: 2 % wide, so that a quantile is at most 1 % off
)
NO_TENANT: Final = ""  # the tenant whose slices have the latency of the whole model

K = TypeVar("K")
SliceKey = tuple[int, int, str, str, "StoredSloTarget"]


class StoredSloTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was promised then. Seconds and percent; None: nothing of the kind."""

    latency: float | None = None
    percentile: float = 99.0
    availability: float | None = None
    first_byte: float | None = None

    @classmethod
    def of(cls, promise: SloTarget) -> StoredSloTarget:
        return cls(
            _finite(promise.latency), promise.percentile, promise.availability or None, _finite(promise.first_byte)
        )

    @property
    def timed(self) -> bool:
        return self.latency is not None or self.first_byte is not None

    def promise(self) -> SloTarget:
        return SloTarget(
            INFINITY if self.latency is None else self.latency,
            self.percentile,
            self.availability or 0.0,
            INFINITY if self.first_byte is None else self.first_byte,
        )


class Slice(msgspec.Struct):
    start: int  # seconds since 1970, a whole minute (hour, day: UTC)
    model: str
    tenant: str
    counts: dict[str, int] = {}  # `met`, `late/replica`, …: NAMES
    latency: dict[int, int] = {}  # of answered requests: coarse() bucket → how many; only where the tenant is WHOLE
    promised: StoredSloTarget = StoredSloTarget()
    step: int = MINUTE_SECONDS  # seconds that it is about
    ran: int = 1  # minutes of these in which the gateway ran

    @property
    def key(self) -> SliceKey:
        """Slices of one key are one slice. What was promised is part of it: a change does not blur what was before."""
        return (self.start, self.step, self.model, self.tenant, self.promised)


def verdict_key(verdict: str, fault: str) -> str:
    return f"{verdict}/{fault}" if fault else verdict


# `refused/overload/first_byte`: for its first-byte deadline; `…/total`: for its total one.
VERDICT_KEYS: Final = tuple(
    verdict_key(*judgement) + (f"/{VERDICT_DEADLINES[index]}" if index in VERDICT_DEADLINES else "")
    for index, judgement in enumerate(SLO_VERDICTS)
)


def counts_by_verdict(counts: Iterable[int]) -> dict[str, int]:
    """From a list by judgement, as workers report it; without the zeros."""
    return {name: count for name, count in zip(VERDICT_KEYS, counts, strict=True) if count}


def coarsen_buckets(latency: Mapping[int, int]) -> dict[int, int]:
    """From the buckets of core.histogram, as workers report them; without the zeros."""
    result: dict[int, int] = {}
    for bucket, count in latency.items():
        if count:
            index = (bucket + COARSENING_FACTOR - 1) // COARSENING_FACTOR
            result[index] = result.get(index, 0) + count
    return result


def start_of_minute(now: float) -> int:
    return int(now // MINUTE_SECONDS) * MINUTE_SECONDS


def add_counts(one: Mapping[K, int], other: Mapping[K, int]) -> dict[K, int]:
    total = dict(one)
    for key, count in other.items():
        total[key] = total.get(key, 0) + count
    return total


def grown(after: Mapping[K, int], before: Mapping[K, int]) -> dict[K, int]:
    """What came between two readings of counts that only grow, without the zeros. Where one went down, who counts has
    begun anew, and all of `after` came since."""
    if any(after.get(key, 0) < count for key, count in before.items()):
        before = {}
    return {key: count - before.get(key, 0) for key, count in after.items() if count != before.get(key, 0)}


def merge_slices(one: Slice, other: Slice) -> Slice:
    """Two slices of one key: what was counted adds up, the time is the same time."""
    return msgspec.structs.replace(
        one,
        counts=add_counts(one.counts, other.counts),
        latency=add_counts(one.latency, other.latency),
        ran=max(one.ran, other.ran),
    )


def roll_up(slices: Iterable[Slice], step: int) -> list[Slice]:
    """Merged into steps of `step` seconds; sums stay as they are."""
    result: dict[SliceKey, Slice] = {}
    for part in slices:
        wide = msgspec.structs.replace(part, start=part.start // step * step, step=step)
        known = result.get(wide.key)
        if known is None:
            result[wide.key] = wide
        else:
            ran = min(known.ran + wide.ran, step // MINUTE_SECONDS)
            result[wide.key] = msgspec.structs.replace(merge_slices(known, wide), ran=ran)
    return list(result.values())


def quantile(latency: Mapping[int, int], q: float) -> float:
    """Seconds; at most 1 % off; nan if nothing was answered."""
    bucket = quantile_bucket(latency, q)
    if bucket is None:
        return nan
    return MIN_BUCKET_SECONDS * BUCKET_GROWTH ** ((bucket - 0.5) * COARSENING_FACTOR) if bucket else MIN_BUCKET_SECONDS


def count_verdict(counts: Mapping[str, int], verdict: str) -> int:
    """All of a verdict, whosever the fault."""
    return sum(count for name, count in counts.items() if name.partition("/")[0] == verdict)


def is_client_fault(name: str) -> bool:
    """Never counts against a promise."""
    return name.partition("/")[2] == CLIENT


def latency_good_bad(counts: Mapping[str, int]) -> tuple[int, int]:
    """Good and bad for a promise of time: of those that were answered or should have been, how many within it?"""
    bad = sum(c for n, c in counts.items() if n.partition("/")[0] in (LATE, FAILED, REFUSED) and not is_client_fault(n))
    return counts.get(MET, 0), bad


def availability_good_bad(counts: Mapping[str, int]) -> tuple[int, int]:
    """Good and bad for a promise of availability: of those that should have been answered, how many were at all?"""
    late = sum(c for n, c in counts.items() if n.partition("/")[0] == LATE and not is_client_fault(n))
    bad = sum(c for n, c in counts.items() if n.partition("/")[0] in (FAILED, REFUSED) and not is_client_fault(n))
    return counts.get(MET, 0) + late, bad


def _finite(seconds: float) -> float | None:
    return None if isinf(seconds) else seconds


VERDICTS: Final = (MET, LATE, FAILED, REFUSED, ABANDONED)
