"""SLOs: requests by verdict, targets, attainment, burn rates and error budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ....core.slo.verdicts import SLO_VERDICTS
from ...observability.totals import ModelTotals
from ...observability.views import SloView
from .exposition import Family, Sample, attribute_families, labels

_VERDICT_LABELS = tuple(labels(verdict=verdict, fault=fault or "none") for verdict, fault in SLO_VERDICTS)
_OF_OBJECTIVE = (
    (
        "steelyard_slo_error_budget_remaining_ratio",
        "gauge",
        "share of the error budget; below 0: overspent",
        "error_budget_remaining",
    ),
)


def slo_families(slo: tuple[SloView, ...], totals: Mapping[str, ModelTotals]) -> Iterator[Family]:
    judged = [sample for _, status in sorted(totals.items()) for sample in _verdicts(status)]
    yield Family("steelyard_slo_requests_total", "counter", "requests that ended, by SLO verdict and fault", judged)
    objectives = [
        (labels(model=view.model, tenant=view.tenant, objective=objective.kind), objective)
        for view in slo
        for objective in view.objectives
    ]
    targets = [Sample(of, objective.target / 100.0) for of, objective in objectives]
    yield Family("steelyard_slo_target_ratio", "gauge", "share of requests that should be good", targets)
    thresholds = [
        Sample(f'{of},threshold="{name}"', getattr(objective, name))
        for of, objective in objectives
        for name in ("latency", "first_byte", "per_token")
    ]
    about = "target of the whole answer, its first byte, and a further token"
    yield Family("steelyard_slo_threshold_seconds", "gauge", about, thresholds)
    windows = [
        (f'{of},window="{_length(window.seconds)}"', window)
        for of, objective in objectives
        for window in objective.windows
    ]
    periods = [(f'{of},window="period"', objective.budget) for of, objective in objectives]
    attained = [
        Sample(of, None if window.attainment is None else window.attainment / 100.0)
        for of, window in (*windows, *periods)
    ]
    yield Family("steelyard_slo_attainment_ratio", "gauge", "share of requests that were good in a window", attained)
    burns = [Sample(of, window.burn_rate) for of, window in windows]
    yield Family("steelyard_slo_burn_rate", "gauge", "use of the error budget; 1: as fast as allowed", burns)
    yield from attribute_families(_OF_OBJECTIVE, objectives)


def _verdicts(status: ModelTotals) -> Iterator[Sample]:
    """All verdicts of a tenant from its first request on: a rate needs the zero before the one."""
    for tenant, counts in sorted(status.slo_verdicts.items()):
        together: Counter[str] = Counter()
        for about, count in zip(_VERDICT_LABELS, counts, strict=True):
            together[about] += count
        of = labels(model=status.model, tenant=tenant)
        yield from (Sample(f"{of},{about}", count) for about, count in together.items())


def _length(seconds: float) -> str:
    return f"{seconds / 3600.0:g}h" if seconds >= 3600.0 else f"{seconds / 60.0:g}m"
