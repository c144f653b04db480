"""Sums over the reports of all workers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...link.messages import Durations, ModelReport, ReplicaReport, WorkerReport
from ..fleet.registry import ReplicaKey
from .views import WorkerView

if TYPE_CHECKING:
    from .retired_workers import RetiredTotals

K = TypeVar("K")
N = TypeVar("N", int, float)
MODEL_COUNTERS = (
    "offered_work", "completed_work", "predicted_seconds", "prediction_error_seconds", "arrived", "retried", "hedged",
    "hedges_won", "ejected",
)  # fmt: skip
REPLICA_COUNTERS = ("dispatched", "failures", "ejections_total")
UNKNOWN_STATE = "unknown"  # not reported yet


class ReplicaTotals(ReplicaReport, frozen=True):
    """A replica over all workers, as far as `_replica_totals` sums it up; counts are since the supervisor began."""


class ModelTotals(ModelReport, frozen=True):
    """A model over all workers, as far as `_model_totals` sums it up; counts are since the supervisor began."""

    @property
    def requests(self) -> int:
        return sum(self.outcomes.values())


class FleetStatus(msgspec.Struct, frozen=True):
    workers: tuple[WorkerView, ...]
    models: dict[str, ModelTotals]
    replicas: dict[ReplicaKey, ReplicaTotals]
    connections: int
    unexpected_exits: int = 0  # workers that ended unexpectedly so far


FleetTotals = tuple[dict[str, ModelTotals], dict[ReplicaKey, ReplicaTotals]]


def merge_reports(
    reports: Iterable[WorkerReport], past: RetiredTotals, configured: Mapping[str, Iterable[str]] = MappingProxyType({})
) -> FleetTotals:
    """Totals of living workers, with the counts of dead ones. `configured` replicas are there before any report."""
    models: dict[str, list[ModelReport]] = {model: [] for model in configured}
    replicas: dict[ReplicaKey, list[ReplicaReport]] = {
        (model, id): [] for model, ids in configured.items() for id in ids
    }
    for report in reports:
        for model in report.models:
            models.setdefault(model.model, []).append(model)
        for replica in report.replicas:
            replicas.setdefault((replica.model, replica.id), []).append(replica)
    return (
        {name: _model_totals(name, models.get(name, []), past.models.get(name)) for name in {**past.models, **models}},
        {
            key: _replica_totals(key, replicas.get(key, []), past.replicas.get(key))
            for key in {**past.replicas, **replicas}
        },
    )


def unrouted_requests(reports: Iterable[WorkerReport], past: RetiredTotals) -> dict[str, int]:
    """Requests for no configured model, by outcome."""
    return sum_counts((past.unrouted, *(report.unrouted for report in reports)))


def lost_telemetry(reports: Iterable[WorkerReport], past: RetiredTotals) -> dict[str, int]:
    """Log lines and spans that could not be written or sent, by kind."""
    return sum_counts((past.lost_telemetry, *(report.dropped for report in reports)))


def _model_totals(name: str, living: list[ModelReport], dead: ModelReport | None) -> ModelTotals:
    typical = [r.typical_seconds for r in living if r.learned] or [
        r.typical_seconds for r in living if r.typical_seconds
    ]
    return ModelTotals(
        name,
        waiting=sum(r.waiting for r in living),
        in_flight=sum(r.in_flight for r in living),
        typical_seconds=sum(typical) / len(typical) if typical else 0.0,
        service_rate=max((r.service_rate for r in living), default=0.0),
        panicking=any(r.panicking for r in living),
        prefix_index_blocks=sum(r.prefix_index_blocks for r in living),
        queued_work=sum(r.queued_work for r in living),
        oldest_wait=max((r.oldest_wait for r in living), default=0.0),
        **sum_counters([*living, *([dead] if dead else [])]),
    )


def sum_counters(reports: list[ModelReport]) -> dict[str, Any]:
    """Sums of all that only grows."""
    return {
        "outcomes": sum_counts(r.outcomes for r in reports),
        "statuses": sum_counts(r.statuses for r in reports),
        "latency": sum_counts(r.latency for r in reports),
        "tokens": sum_counts(r.tokens for r in reports),
        "slo_verdicts": sum_lists((tenant, counts) for r in reports for tenant, counts in r.slo_verdicts.items()),
        "times": _sum_durations(reports),
        **{name: sum(getattr(r, name) for r in reports) for name in MODEL_COUNTERS},
    }


def _sum_durations(reports: list[ModelReport]) -> dict[str, Durations]:
    counts = sum_lists((name, times.counts) for r in reports for name, times in r.times.items())
    return {
        name: Durations(n, sum(r.times[name].total for r in reports if name in r.times)) for name, n in counts.items()
    }


def sum_lists(parts: Iterable[tuple[str, list[int]]]) -> dict[str, list[int]]:
    """Element-wise, by name."""
    total: dict[str, list[int]] = {}
    for name, counts in parts:
        total[name] = [a + b for a, b in zip(total[name], counts, strict=True)] if name in total else counts
    return total


def _replica_totals(key: ReplicaKey, living: list[ReplicaReport], dead: ReplicaReport | None) -> ReplicaTotals:
    everyone = [*living, *([dead] if dead else [])]
    decided = [r for r in living or everyone if r.state]
    latest = min(living, key=lambda r: r.last_error_age, default=None)
    return ReplicaTotals(
        *key,
        state=Counter(r.state for r in decided).most_common(1)[0][0] if decided else UNKNOWN_STATE,
        in_flight=sum(r.in_flight for r in living),
        consecutive_ejections=max((r.consecutive_ejections for r in living), default=0),
        last_error=latest.last_error if latest is not None else "",
        last_error_age=latest.last_error_age if latest is not None else inf,
        work=sum(r.work for r in living),
        slowness=_mean_slowness(decided),
        samples=sum(r.samples for r in living),
        sampled_age=min((r.sampled_age for r in living), default=inf),
        **sum_replica_counters(everyone),
    )


def sum_replica_counters(reports: list[ReplicaReport]) -> dict[str, Any]:
    counters = {name: sum(getattr(r, name) for r in reports) for name in REPLICA_COUNTERS}
    return {
        "outcomes": sum_counts(r.outcomes for r in reports),
        "tokens": sum_counts(r.tokens for r in reports),
        "token_seconds": sum_counts(r.token_seconds for r in reports),
        **counters,
    }


def _mean_slowness(reports: list[ReplicaReport]) -> float:
    """Weighted by samples; without any, every worker reports what the weight implies."""
    samples = sum(r.samples for r in reports)
    if not samples:
        return sum(r.slowness for r in reports) / len(reports) if reports else 1.0
    return sum(r.slowness * r.samples for r in reports) / samples


def sum_counts(parts: Iterable[Mapping[K, N]]) -> dict[K, N]:
    total: dict[K, N] = {}
    for part in parts:
        for key, count in part.items():
            total[key] = total[key] + count if key in total else count
    return total
