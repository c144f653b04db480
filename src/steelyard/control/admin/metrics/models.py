"""Models: their requests, how long these take, and the work they mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ....core.statistics.histogram import DURATION_BOUNDS_SECONDS
from ...observability.metrics_snapshot import MetricsSnapshot
from ...observability.totals import ModelTotals
from ...observability.views import ModelView
from .exposition import Family, Sample, histogram, labels

_GAUGES = (
    ("replicas", "replicas that are known", "replicas"),
    ("replicas_ready", "replicas that are ready", "ready"),
    ("requests_in_flight", "requests at its replicas", "in_flight"),
    ("requests_waiting", "requests in its queue", "waiting"),
    ("panic_mode", "1: too few replicas are healthy, all are used", "panic_mode"),
    ("typical_request_seconds", "estimated work of a typical request on a typical replica", "typical_seconds"),
    ("drain_rate", "seconds of typical work that its replicas do per second", "drain_rate"),
)
_COUNTERS = (
    ("arrivals_total", "requests that came", "arrived"),
    ("work_offered_seconds_total", "seconds of estimated work that came", "offered"),
    ("work_done_seconds_total", "seconds of estimated work that were answered", "done"),
    ("estimated_seconds_total", "seconds that answered attempts were believed to take", "predicted_seconds"),
    ("estimate_error_seconds_total", "by how much that was off, either way", "prediction_error_seconds"),
    ("retries_total", "attempts at another replica after one that failed", "retried"),
    ("hedges_total", "second attempts while the first still ran", "hedged"),
    ("hedges_won_total", "of these, how many answered first", "hedges_won"),
    ("ejections_total", "times that a worker took out a replica that failed or crawled", "ejected"),
)
_HISTOGRAMS = (
    ("duration", "from the head of a request to the end of its answer", "total"),
    ("queue", "that requests waited for a replica", "queue"),
    ("replica", "that answered requests spent at their replica", "replica"),
    ("first_byte", "from the head of a request to the first byte of its answer", "first_byte"),
)


def model_families(models: tuple[ModelView, ...], numbers: MetricsSnapshot) -> Iterator[Family]:
    named = {view.model: labels(model=view.model) for view in models}
    for name, meaning, field in _GAUGES:
        now = [Sample(named[view.model], float(getattr(view, field))) for view in models]
        yield Family(f"steelyard_model_{name}", "gauge", meaning, now)
    yield from _ended(models)
    known = [(of, numbers.models[model]) for model, of in named.items() if model in numbers.models]
    for name, meaning, field in _COUNTERS:
        counted = [Sample(of, getattr(status, field)) for of, status in known]
        yield Family(f"steelyard_model_{name}", "counter", meaning, counted)
    answers = [
        Sample(f'{of},status="{_status(code)}"', count)
        for of, status in known
        for code, count in sorted(status.statuses.items())
    ]
    yield Family("steelyard_model_responses_total", "counter", "requests that ended, by HTTP status", answers)
    oldest = [Sample(of, status.oldest_wait) for of, status in known]
    yield Family(
        "steelyard_model_oldest_wait_seconds", "gauge", "how long the oldest queued request has waited", oldest
    )
    yield _work(known, numbers)
    for name, meaning, field in _HISTOGRAMS:
        times = [sample for of, status in known for sample in _times(of, status, field)]
        yield Family(f"steelyard_request_{name}_seconds", "histogram", f"seconds {meaning}", times)


def _status(code: int) -> str:
    return "none" if not code else f"{code}xx" if code < 10 else str(code)


def _ended(models: tuple[ModelView, ...]) -> Iterator[Family]:
    ended = [
        Sample(labels(model=view.model, outcome=outcome), number)
        for view in models
        for outcome, number in view.outcomes.items()
    ]
    yield Family("steelyard_model_requests_total", "counter", "requests that ended, by outcome", ended)
    latencies = [
        Sample(labels(model=view.model, quantile=quantile), seconds)
        for view in models
        for quantile, seconds in (("0.5", view.p50), ("0.99", view.p99))
    ]
    yield Family("steelyard_model_latency_seconds", "summary", "of all answers since the start", latencies)


def _work(known: list[tuple[str, ModelTotals]], numbers: MetricsSnapshot) -> Family:
    there: dict[str, float] = defaultdict(float)
    for replica in numbers.replicas.values():
        there[replica.model] += replica.estimated_work
    work = [
        Sample(f'{of},stage="{stage}"', seconds)
        for of, status in known
        for stage, seconds in (("replica", there[status.model]), ("queue", status.backlog))
    ]
    return Family("steelyard_model_work_seconds", "gauge", "seconds of estimated work that are not done yet", work)


def _times(of: str, status: ModelTotals, field: str) -> Iterator[Sample]:
    found = status.times.get(field)
    return histogram(of, DURATION_BOUNDS_SECONDS, found.counts, found.total) if found is not None else iter(())
