"""The minutes before a restart, from the history, so that charts do not begin empty. Pure.

A minute becomes a point every five seconds: charts break a line where points are further apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import isnan
from typing import Final

from ...core.slo.verdicts import ABANDONED, CLIENT, MET
from ..history.slices import MINUTE_SECONDS, Slice, add_counts, quantile
from .views import StoredSampleView

POINT_INTERVAL_SECONDS: Final = 5
CHART_SECONDS: Final = 300.0

StoredSamples = dict[str, tuple[StoredSampleView, ...]]


def stored_samples(slices: Iterable[Slice], began: float) -> StoredSamples:
    """By model, the latest last. `began`: start of this supervisor, in seconds since 1970."""
    counts: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    latency: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for part in slices:
        if part.step == MINUTE_SECONDS and began - CHART_SECONDS - MINUTE_SECONDS <= part.start < began:
            place = (part.model, part.start)
            counts[place] = add_counts(counts[place], part.counts)
            latency[place] = add_counts(latency[place], part.latency)
    found: dict[str, list[StoredSampleView]] = defaultdict(list)
    for (model, start), came in sorted(counts.items()):
        found[model] += _points(start - began, came, latency[model, start])
    return {model: tuple(points) for model, points in found.items()}


def _points(start: float, counts: dict[str, int], latency: dict[int, int]) -> list[StoredSampleView]:
    p50, p99 = (None if isnan(seconds) else seconds for seconds in (quantile(latency, 0.5), quantile(latency, 0.99)))
    rate = sum(counts.values()) / MINUTE_SECONDS
    bad = sum(n for name, n in counts.items() if _is_bad(name)) / MINUTE_SECONDS
    return [
        StoredSampleView(uptime=start + after, rate=rate, bad_rate=bad, p50=p50, p99=p99)
        for after in range(0, MINUTE_SECONDS, POINT_INTERVAL_SECONDS)
        if start + after < 0.0
    ]


def _is_bad(name: str) -> bool:
    verdict, _, fault = name.partition("/")
    return verdict not in (MET, ABANDONED) and fault != CLIENT
