"""Combines workers' reports of a model into the metrics of a scaler. Pure: reports and times in, numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...config import ModelConfig
from ...core.request import INFINITY
from ...core.scalers.base import ScalingMetrics
from ...core.slo.verdicts import CLIENT, FAILED, LATE, MET, REFUSED, SLO_VERDICTS
from ...link.messages import ModelReport, WorkerReport
from .cost_normalizer import CostNormalizer, LearnedTotals, learned_totals, work_totals
from .latencies import RecentLatencies

WAITING_SIGNAL_TTL_SECONDS = 2.0  # by then a report says so too
DEFAULT_LATE_RATIO = 0.01  # share of the requests that may be late, without an SLO


class SignalTerms(NamedTuple):
    """A model's configuration, as far as its signals depend on it."""

    latency_target: float = INFINITY  # seconds
    late_ratio: float = DEFAULT_LATE_RATIO
    failures_count: bool = False  # does a failed request break the SLO?
    lateness_counts: bool = False  # does a late one?
    slots: float = INFINITY  # of a replica; INFINITY: no known limit


def signal_terms(model: ModelConfig) -> SignalTerms:
    """Without an SLO, failures do not count: a model that fails every request would get ever more replicas, which fail
    as well."""
    slots = float(model.concurrency) if isinstance(model.concurrency, int) else INFINITY
    slo = model.slo
    if slo is None:
        return SignalTerms(slots=slots)
    target = slo.objective()
    if not target.timed:
        return SignalTerms(INFINITY, _error_budget(target.availability), True, False, slots)
    return SignalTerms(target.latency, _error_budget(target.percentile), True, True, slots)


def _error_budget(percent: float) -> float:
    return max(1.0 - percent / 100.0, 1e-6)


def by_model(reports: Sequence[WorkerReport]) -> dict[str, list[ModelReport]]:
    found: dict[str, list[ModelReport]] = {}
    for report in reports:
        for model in report.models:
            found.setdefault(model.model, []).append(model)
    return found


class _Totals(NamedTuple):
    offered: float = 0.0
    done: float = 0.0
    busy: float = 0.0
    arrived: int = 0
    ended: int = 0  # all verdicts
    met: int = 0  # this and the next three: without those whose clients are at fault
    late: int = 0
    failed: int = 0
    refused: int = 0
    known: LearnedTotals = LearnedTotals()

    def less_than(self, last: _Totals) -> bool:
        return any(new < old for new, old in zip(self[:-1], last[:-1], strict=True))


class ScalingSignals:
    """One model's. Its counts only grow, although a worker that ends takes its own with it."""

    def __init__(self, terms: SignalTerms) -> None:
        self.terms = terms
        self._last: _Totals | None = None
        self._offered = 0.0
        self._done = self._busy = 0.0
        self._arrived = 0
        self._answered = 0
        self._late = 0
        self._now: Sequence[ModelReport] = ()
        self._rate = 0.0  # as last known
        self._pressing = (-INFINITY, 0, 0.0)  # until when, requests, work: signalled between reports
        self._latencies = RecentLatencies()
        self._worth = CostNormalizer()
        self._served = False  # was a replica ready at the last look?

    def update(self, reports: Sequence[ModelReport], now: float, *, ready: int = 1) -> None:
        """The latest of each worker. `ready`: replicas that serve."""
        totals, last = _totals(reports), self._last
        served, self._served = self._served and ready > 0, ready > 0
        fewer = len(reports) < len(self._now)
        self._now, self._last = reports, totals
        if rates := [report.replica_rate for report in reports if report.replica_rate > 0]:
            self._rate = sum(rates) / len(rates)
        if last is None or fewer or totals.less_than(last):
            self._latencies.rebase([report.latency for report in reports])
            return  # the first look, or a worker ended: the difference means nothing
        self._count(totals, last)
        if totals.ended != last.ended:
            self._judge(totals, last, now, served)

    def _count(self, totals: _Totals, last: _Totals) -> None:
        arrived = totals.arrived - last.arrived
        self._arrived += arrived
        if totals.known.workers:
            offered, done, busy = self._worth.growth(totals.known, last.known, arrived, totals.arrived)
        else:
            offered, done, busy = (new - old for new, old in zip(totals[:3], last[:3], strict=True))
        self._offered += offered
        self._done += done
        self._busy += busy

    def _judge(self, totals: _Totals, last: _Totals, now: float, served: bool) -> None:
        """A refused request counts as late, unless there was no replica at all: spare capacity would not change that.
        Clients' errors and cancellations say nothing."""
        self._latencies.update([report.latency for report in self._now], now)
        late = totals.late - last.late
        lost = totals.failed - last.failed if self.terms.failures_count else 0
        if served:
            lost += totals.refused - last.refused
        self._answered += totals.met - last.met + late + lost
        self._late += lost + (late if self.terms.lateness_counts else 0)

    def model_requested(self, waiting: int, work: float, now: float) -> None:
        self._pressing = (now + WAITING_SIGNAL_TTL_SECONDS, max(1, waiting), work)

    def snapshot(self, now: float, *, ready: int, coming: int, cold_start: float) -> ScalingMetrics:
        reports, terms = self._now, self.terms
        until, waiting, work = self._pressing
        if now >= until or ready:
            waiting, work = 0, 0.0
        return ScalingMetrics(
            now=now,
            ready=ready,
            starting=coming,
            offered=self._offered,
            arrived=self._arrived,
            running=sum(report.in_flight for report in reports),
            waiting=max(waiting, sum(report.waiting for report in reports)),
            backlog=max(work, self._worth.backlog(reports)),
            estimates_learned=any(report.learned for report in reports),
            rate=self._rate or (terms.slots if terms.slots < INFINITY else 1.0),
            completed_work=self._done,
            busy_seconds=self._busy,
            slots=min(terms.slots, *(report.limit or INFINITY for report in reports), INFINITY),
            cold_start=cold_start,
            answered=self._answered,
            late=self._late,
            slo_seconds=terms.latency_target,
            slo_late_share=terms.late_ratio,
            p99=self._latencies.p99(now),
            slots_configured=terms.slots < INFINITY,
        )


def _totals(reports: Sequence[ModelReport]) -> _Totals:
    return _Totals(
        *work_totals(reports),
        sum(sum(report.outcomes.values()) for report in reports),
        _judged(reports, MET),
        _judged(reports, LATE),
        _judged(reports, FAILED),
        _judged(reports, REFUSED),
        learned_totals(reports),
    )


_VERDICT_INDEXES = {
    verdict: [index for index, (judged, fault) in enumerate(SLO_VERDICTS) if judged == verdict and fault != CLIENT]
    for verdict in (MET, LATE, FAILED, REFUSED)
}


def _judged(reports: Sequence[ModelReport], verdict: str) -> int:
    places = _VERDICT_INDEXES[verdict]
    return sum(counts[place] for report in reports for counts in report.slo_verdicts.values() for place in places)
