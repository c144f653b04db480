"""The content of a report on a period, without its presentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, nan
from typing import Final

import msgspec

from .periods import MAX_STEPS, STEP_WIDTHS_SECONDS, gaps, step_width
from .slices import (
    HOUR_SECONDS,
    MINUTE_SECONDS,
    NO_TENANT,
    Slice,
    StoredSloTarget,
    add_counts,
    availability_good_bad,
    latency_good_bad,
    quantile,
    roll_up,
)

QUANTILES: Final = (0.5, 0.9, 0.99)


class ObjectiveSummary(msgspec.Struct, frozen=True):
    """One target, and how requests under it met it."""

    kind: str  # latency, availability
    words: str
    target: float  # percent
    good: int
    bad: int

    @property
    def attained(self) -> float:
        """Percent; nan without requests."""
        return 100.0 * self.good / (self.good + self.bad) if self.good + self.bad else nan

    @property
    def met(self) -> bool | None:
        """None without requests."""
        return self.budget_used <= 1.0 + 1e-9 if self.good + self.bad else None

    @property
    def budget_used(self) -> float:
        """Share of the error budget."""
        allowed = (100.0 - self.target) / 100.0 * (self.good + self.bad)
        if not self.bad:
            return 0.0
        return self.bad / allowed if allowed > 1e-9 else inf


class SummaryStep(msgspec.Struct):
    start: int
    counts: dict[str, int]
    latency: dict[int, int]
    ran: int  # minutes


class ReportRow(msgspec.Struct):
    """A model, or a tenant of it."""

    model: str
    tenant: str | None  # None: all of them
    counts: dict[str, int]
    objectives: list[ObjectiveSummary]
    worst: tuple[int, float] | None  # the hour (or longer step) with the lowest percentage of good requests

    @property
    def requests(self) -> int:
        return sum(self.counts.values())


class ModelSummary(msgspec.Struct):
    name: str
    whole: ReportRow
    tenants: list[ReportRow]
    steps: list[SummaryStep]
    quantiles: list[float]  # seconds, of QUANTILES
    timed: bool  # has a latency target; if not, good means answered at all


class Summary(msgspec.Struct):
    since: float
    until: float
    step: int  # seconds
    worst_step: int  # seconds of what `worst` is about
    gaps: list[tuple[int, int, int]]
    models: list[ModelSummary]
    slices: list[Slice]  # all of it, in steps
    chart_start: float  # of decades, only what is known


def summarize(
    found: Iterable[Slice],
    since: float,
    until: float,
    now: float,
    model: str | None = None,
    tenant: str | None = None,
) -> Summary:
    """Of slices that touch the period, which is widened to whole hours or days where only those are left."""
    slices = [part for part in found if part.start + part.step > since and part.start < until]
    since = min([since // MINUTE_SECONDS * MINUTE_SECONDS, *(part.start for part in slices)])
    until = max([until, *(part.start + part.step for part in slices if part.step > MINUTE_SECONDS)])
    finest = max((part.step for part in slices), default=MINUTE_SECONDS)
    missing = gaps(slices, since, until, now)
    chosen = [part for part in slices if model in (None, part.model)]
    drawn = since
    if until - since > MAX_STEPS * STEP_WIDTHS_SECONDS[-1]:
        drawn = max(since, min([part.start for part in slices], default=until - 1.0))
    step = step_width(drawn, until, finest)
    worst_step = max(HOUR_SECONDS, finest)
    names = sorted({part.model for part in chosen})
    models = [_model(name, [p for p in chosen if p.model == name], step, worst_step, tenant) for name in names]
    wide = [p for p in roll_up(chosen, step) if tenant in (None, p.tenant)]
    return Summary(since, until, step, worst_step, missing, models, sorted(wide, key=lambda p: p.key[:4]), drawn)


def good_and_bad(counts: dict[str, int], timed: bool) -> tuple[int, int]:
    return latency_good_bad(counts) if timed else availability_good_bad(counts)


def _model(name: str, slices: Sequence[Slice], step: int, worst_step: int, tenant: str | None) -> ModelSummary:
    asked = [part for part in slices if tenant in (None, part.tenant)]
    timed = any(part.slo.timed for part in asked if part.counts)
    tenants = sorted({part.tenant for part in asked if part.counts})
    latency: dict[int, int] = {}
    if tenant is None:  # counted by model only
        for part in slices:
            latency = add_counts(latency, part.latency)
    return ModelSummary(
        name,
        _row(name, tenant, asked, worst_step),
        [_row(name, each, [p for p in asked if p.tenant == each], worst_step) for each in tenants],
        _steps(slices, step, tenant),
        [quantile(latency, q) for q in QUANTILES],
        timed,
    )


def _row(model: str, tenant: str | None, slices: Sequence[Slice], worst_step: int) -> ReportRow:
    counts: dict[str, int] = {}
    by_slo: dict[StoredSloTarget, dict[str, int]] = {}
    for part in slices:
        counts = add_counts(counts, part.counts)
        by_slo[part.slo] = add_counts(by_slo.get(part.slo, {}), part.counts)
    return ReportRow(model, tenant, counts, _objectives(by_slo), _worst(slices, worst_step))


def _objectives(by_slo: dict[StoredSloTarget, dict[str, int]]) -> list[ObjectiveSummary]:
    """One for each objective, also where the rest of the target changed."""
    result: dict[tuple[str, str, float], ObjectiveSummary] = {}
    for slo, counts in by_slo.items():
        for kind, words, target in describe_targets(slo):
            good, bad = good_and_bad(counts, kind == "latency")
            known = result.get((kind, words, target), ObjectiveSummary(kind, words, target, 0, 0))
            result[kind, words, target] = ObjectiveSummary(kind, words, target, known.good + good, known.bad + bad)
    return [result[key] for key in sorted(result, key=lambda key: (key[0] != "latency", key[1], key[2]))]


def describe_targets(slo: StoredSloTarget) -> list[tuple[str, str, float]]:
    """Kind, words and percent of each."""
    result: list[tuple[str, str, float]] = []
    if slo.timed:
        result.append(("latency", f"{slo.percentile:g} % {slo.limits}", slo.percentile))
    if slo.availability is not None:
        result.append(("availability", f"{slo.availability:g} % answered", slo.availability))
    return result


def _steps(slices: Sequence[Slice], step: int, tenant: str | None) -> list[SummaryStep]:
    result: dict[int, SummaryStep] = {}
    for part in roll_up(slices, step):
        known = result.setdefault(part.start, SummaryStep(part.start, {}, {}, 0))
        known.ran = max(known.ran, part.ran)
        if tenant in (None, part.tenant):
            known.counts = add_counts(known.counts, part.counts)
        if tenant is None and part.tenant == NO_TENANT:
            known.latency = add_counts(known.latency, part.latency)
    return [result[start] for start in sorted(result)]


def _worst(slices: Sequence[Slice], step: int) -> tuple[int, float] | None:
    totals: dict[int, tuple[int, int]] = {}
    for part in slices:
        start = part.start // step * step
        good, bad = good_and_bad(part.counts, part.slo.timed)
        before = totals.get(start, (0, 0))
        totals[start] = (before[0] + good, before[1] + bad)
    shares = [(good / (good + bad), -bad, start) for start, (good, bad) in totals.items() if bad]
    if not shares:
        return None
    share, _, start = min(shares)
    return start, 100.0 * share
