"""What is kept of a minute (later: an hour or a day): requests of one tenant by SLO verdict, and their latency.

Latency is counted by model: the slices of the tenant "" have it for all tenants together. A slice without counts says
that the gateway ran and no request came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isinf, nan
from typing import Final, TypeVar

import msgspec

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
from ...units import format_seconds

MINUTE_SECONDS: Final = 60
HOUR_SECONDS: Final = 3600
DAY_SECONDS: Final = 86400
STEP_SECONDS: Final = (MINUTE_SECONDS, HOUR_SECONDS, DAY_SECONDS)
COARSENING_FACTOR: Final = (
    5  # of the buckets of core.statistics.histogram: then 2 % wide, and a quantile at most 1 % off
)
NO_TENANT: Final = ""  # has the latency of the whole model

K = TypeVar("K")
SliceKey = tuple[int, int, str, str, "StoredSloTarget"]


class StoredSloTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """The target in force then. Seconds and percent; None: no such target."""

    latency: float | None = None
    percentile: float = 99.0
    availability: float | None = None
    first_byte: float | None = None
    per_token: float | None = None

    @classmethod
    def of(cls, target: SloTarget) -> StoredSloTarget:
        return cls(
            _finite(target.latency),
            target.percentile,
            target.availability or None,
            _finite(target.first_byte),
            _finite(target.per_token),
        )

    @property
    def timed(self) -> bool:
        return self.latency is not None or self.first_byte is not None or self.per_token is not None

    @property
    def limits(self) -> str:
        """In words: `within 2 s, first byte within 500 ms`."""
        limits = (
            ("within", self.latency),
            ("first byte within", self.first_byte),
            ("further tokens within", self.per_token),
        )
        return ", ".join(f"{what} {format_seconds(seconds)}" for what, seconds in limits if seconds is not None)


class Slice(msgspec.Struct):
    start: int  # seconds since 1970, a whole minute (hour, day: UTC)
    model: str
    tenant: str
    counts: dict[str, int] = {}  # by VERDICT_KEYS: `met`, `late/replica`, …
    latency: dict[int, int] = {}  # answers by coarse bucket; only for NO_TENANT
    slo: StoredSloTarget = StoredSloTarget()
    step: int = MINUTE_SECONDS
    ran: int = 1  # minutes of it in which the gateway ran

    @property
    def key(self) -> SliceKey:
        """Slices of one key are merged. The target is part of it: a change does not blur what was before."""
        return (self.start, self.step, self.model, self.tenant, self.slo)


# Verdict, fault and missed deadline: `refused/overload/first_byte`.
VERDICT_KEYS: Final = tuple(
    "/".join(filter(None, (verdict, fault, VERDICT_DEADLINES.get(index))))
    for index, (verdict, fault) in enumerate(SLO_VERDICTS)
)


def counts_by_verdict(counts: Iterable[int]) -> dict[str, int]:
    """From a worker's report; without zeros."""
    return {name: count for name, count in zip(VERDICT_KEYS, counts, strict=True) if count}


def coarsen_buckets(latency: Mapping[int, int]) -> dict[int, int]:
    """From the buckets of core.statistics.histogram; without zeros."""
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


def merge_slices(one: Slice, other: Slice) -> Slice:
    """Two slices of one key: counts add up, the time does not."""
    return msgspec.structs.replace(
        one,
        counts=add_counts(one.counts, other.counts),
        latency=add_counts(one.latency, other.latency),
        ran=max(one.ran, other.ran),
    )


def roll_up(slices: Iterable[Slice], step: int) -> list[Slice]:
    """Merges into steps of `step` seconds; sums stay the same."""
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
    """Seconds, at most 1 % off; nan without answers."""
    bucket = quantile_bucket(latency, q)
    if bucket is None:
        return nan
    return MIN_BUCKET_SECONDS * BUCKET_GROWTH ** ((bucket - 0.5) * COARSENING_FACTOR) if bucket else MIN_BUCKET_SECONDS


def count_verdict(counts: Mapping[str, int], verdict: str) -> int:
    """Whosever the fault."""
    return sum(count for name, count in counts.items() if name.partition("/")[0] == verdict)


def latency_good_bad(counts: Mapping[str, int]) -> tuple[int, int]:
    """Good: answered in time."""
    return counts.get(MET, 0), _count(counts, LATE, FAILED, REFUSED)


def availability_good_bad(counts: Mapping[str, int]) -> tuple[int, int]:
    """Good: answered at all."""
    return counts.get(MET, 0) + _count(counts, LATE), _count(counts, FAILED, REFUSED)


def _count(counts: Mapping[str, int], *verdicts: str) -> int:
    """Without requests whose client is at fault."""
    split = [(*name.partition("/"), count) for name, count in counts.items()]
    return sum(count for verdict, _, fault, count in split if verdict in verdicts and fault != CLIENT)


def _finite(seconds: float) -> float | None:
    return None if isinf(seconds) else seconds


VERDICTS: Final = (MET, LATE, FAILED, REFUSED, ABANDONED)
