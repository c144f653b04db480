"""SLOs: requests by verdict, targets, attainment, burn rates and error budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....core.slo.verdicts import SLO_VERDICTS
from ...observability.totals import ModelTotals
from ...observability.views import ObjectiveView, SloView
from .exposition import Family, Sample, labels

NO_FAULT = "none"  # is at fault
_HOUR, _MINUTE = 3600.0, 60.0


def slo_families(slo: tuple[SloView, ...], totals: Mapping[str, ModelTotals]) -> Iterator[Family]:
    judged = [sample for _, status in sorted(totals.items()) for sample in _judged(status)]
    yield Family("steelyard_slo_requests_total", "counter", "requests that ended, by SLO verdict and fault", judged)
    promised = [(_of(view, objective), objective) for view in slo for objective in view.objectives]
    targets = [Sample(of, objective.target / 100.0) for of, objective in promised]
    yield Family("steelyard_slo_target_ratio", "gauge", "share of requests that should be good", targets)
    thresholds = [sample for of, objective in promised for sample in _thresholds(of, objective)]
    yield Family(
        "steelyard_slo_threshold_seconds", "gauge", "target of the whole answer and of its first byte", thresholds
    )
    kept = [sample for of, objective in promised for sample in _kept(of, objective)]
    yield Family("steelyard_slo_attainment_ratio", "gauge", "share of requests that were good in a window", kept)
    burns = [sample for of, objective in promised for sample in _burns(of, objective)]
    yield Family("steelyard_slo_burn_rate", "gauge", "times as fast as allowed that the error budget is used", burns)
    left = [Sample(of, objective.error_budget_remaining) for of, objective in promised]
    yield Family(
        "steelyard_slo_error_budget_remaining_ratio", "gauge", "share of the error budget; below 0: overspent", left
    )


def _judged(status: ModelTotals) -> Iterator[Sample]:
    """All judgements of a tenant from its first request on: a rate needs the zero before the one."""
    for tenant, counts in sorted(status.slo_verdicts.items()):
        of = labels(model=status.model, tenant=tenant)
        together = dict.fromkeys(_VERDICT_LABELS, 0)  # whatever the deadline
        for about, count in zip(_VERDICT_LABELS, counts, strict=True):
            together[about] += count
        for about, count in together.items():
            yield Sample(f"{of},{about}", count)


_VERDICT_LABELS = tuple(labels(verdict=verdict, fault=fault or NO_FAULT) for verdict, fault in SLO_VERDICTS)


def _of(view: SloView, objective: ObjectiveView) -> str:
    return labels(model=view.model, tenant=view.tenant, objective=objective.kind)


def _thresholds(of: str, objective: ObjectiveView) -> Iterator[Sample]:
    yield Sample(f'{of},threshold="latency"', objective.latency)
    yield Sample(f'{of},threshold="first_byte"', objective.first_byte)


def _kept(of: str, objective: ObjectiveView) -> Iterator[Sample]:
    for window in objective.windows:
        yield Sample(f'{of},window="{_length(window.seconds)}"', _share(window.attainment))
    yield Sample(f'{of},window="period"', _share(objective.budget.attainment))


def _burns(of: str, objective: ObjectiveView) -> Iterator[Sample]:
    for window in objective.windows:
        yield Sample(f'{of},window="{_length(window.seconds)}"', window.burn_rate)


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


def _length(seconds: float) -> str:
    return f"{seconds / _HOUR:g}h" if seconds >= _HOUR else f"{seconds / _MINUTE:g}m"
