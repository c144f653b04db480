"""How probes are spread over time and replicas. Pure: times in, figures out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

BUCKET_SECONDS = 0.1


@dataclass(frozen=True)
class Spread:
    rate: float  # probes a second, all together
    replicas: int  # that were probed at all
    shortest: float  # seconds between two probes of the same replica
    usual: float
    longest: float
    busiest: int  # most probes within a tenth of a second


def spread(probes: Iterable[tuple[float, str]], begin: float, end: float) -> Spread:
    """Of the probes from `begin` to `end`."""
    times: dict[str, list[float]] = defaultdict(list)
    buckets: Counter[int] = Counter()
    for when, replica in sorted(probes):
        if begin <= when < end:
            times[replica].append(when)
            buckets[int((when - begin) / BUCKET_SECONDS)] += 1
    gaps = [later - earlier for seen in times.values() for earlier, later in pairwise(seen)]
    return Spread(
        buckets.total() / (end - begin),
        len(times),
        min(gaps, default=0.0),
        median(gaps) if gaps else 0.0,
        max(gaps, default=0.0),
        max(buckets.values(), default=0),
    )
