"""Models: their requests, how long these take, and the work they mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ....core.statistics.histogram import DURATION_BOUNDS_SECONDS
from ...observability.fleet_view import MetricsSnapshot
from ...observability.views import ModelView
from .exposition import Family, Sample, attribute_families, histogram, labels

TOKEN_KINDS = ("prompt", "cached", "output")
_OF_VIEW = (
    ("steelyard_model_replicas", "gauge", "known replicas", "replicas"),
    ("steelyard_model_replicas_ready", "gauge", "ready replicas", "ready"),
    ("steelyard_model_requests_in_flight", "gauge", "requests running at its replicas", "in_flight"),
    ("steelyard_model_requests_waiting", "gauge", "requests in its queue", "waiting"),
    ("steelyard_model_panic_mode", "gauge", "1: too few replicas are healthy, all are used", "panic_mode"),
    (
        "steelyard_model_prefix_index_blocks",
        "gauge",
        "blocks of prompts in the index of its policy",
        "prefix_index_blocks",
    ),
    (
        "steelyard_model_typical_request_seconds",
        "gauge",
        "estimated work of a typical request on a typical replica",
        "typical_seconds",
    ),
    (
        "steelyard_model_service_rate",
        "gauge",
        "seconds of typical work done by its replicas per second",
        "service_rate",
    ),
)
_OF_TOTALS = (
    ("steelyard_model_arrivals_total", "counter", "requests received", "arrived"),
    ("steelyard_model_work_offered_seconds_total", "counter", "estimated work of received requests", "offered_work"),
    ("steelyard_model_work_done_seconds_total", "counter", "estimated work of answered requests", "completed_work"),
    (
        "steelyard_model_estimated_seconds_total",
        "counter",
        "estimated duration of answered attempts",
        "predicted_seconds",
    ),
    (
        "steelyard_model_estimate_error_seconds_total",
        "counter",
        "absolute error of these estimates",
        "prediction_error_seconds",
    ),
    ("steelyard_model_retries_total", "counter", "retries at another replica after a failed attempt", "retried"),
    ("steelyard_model_hedges_total", "counter", "second attempts while the first still ran", "hedged"),
    ("steelyard_model_hedges_won_total", "counter", "hedged attempts that answered first", "hedges_won"),
    (
        "steelyard_model_ejections_total",
        "counter",
        "ejections of its replicas",
        "ejected",
    ),
    ("steelyard_model_oldest_wait_seconds", "gauge", "wait of the oldest queued request", "oldest_wait"),
)
_HISTOGRAMS = (
    ("steelyard_request_duration_seconds", "from the head of a request to the end of its answer", "total"),
    ("steelyard_request_queue_seconds", "that requests waited for a replica", "queue"),
    ("steelyard_request_replica_seconds", "that answered requests spent at their replica", "replica"),
    (
        "steelyard_request_first_byte_seconds",
        "from the head of a request to the first byte of its answer",
        "first_byte",
    ),
    (
        "steelyard_request_first_token_seconds",
        "from the head of a request to the first token of its stream",
        "first_token",
    ),
    (
        "steelyard_request_output_token_seconds",
        "for a token after the first, the mean of each stream",
        "per_token",
    ),
)


def model_families(models: tuple[ModelView, ...], numbers: MetricsSnapshot) -> Iterator[Family]:
    shown = [(labels(model=view.model), view) for view in models]
    yield from attribute_families(_OF_VIEW, shown)
    ended = [Sample(f"{of},{labels(outcome=outcome)}", n) for of, view in shown for outcome, n in view.outcomes.items()]
    yield Family("steelyard_model_requests_total", "counter", "requests that ended, by outcome", ended)
    latencies = [
        Sample(f'{of},quantile="{quantile}"', seconds)
        for of, view in shown
        for quantile, seconds in (("0.5", view.p50), ("0.99", view.p99))
    ]
    yield Family("steelyard_model_latency_seconds", "summary", "latency of all answers since the start", latencies)
    known = [(of, numbers.models[view.model]) for of, view in shown if view.model in numbers.models]
    yield from attribute_families(_OF_TOTALS, known)
    answers = [
        Sample(f'{of},status="{_status(code)}"', count)
        for of, totals in known
        for code, count in sorted(totals.statuses.items())
    ]
    yield Family("steelyard_model_responses_total", "counter", "requests that ended, by HTTP status", answers)
    tokens = [
        Sample(f'{of},kind="{kind}"', count)
        for of, totals in known
        for kind, count in totals.tokens.items()
        if kind in TOKEN_KINDS
    ]
    yield Family("steelyard_model_tokens_total", "counter", "tokens of prompts and answers, as engines say", tokens)
    at_replicas: dict[str, float] = defaultdict(float)
    for replica in numbers.replicas.values():
        at_replicas[replica.model] += replica.work
    work = [
        Sample(f'{of},stage="{stage}"', seconds)
        for of, totals in known
        for stage, seconds in (("replica", at_replicas[totals.model]), ("queue", totals.queued_work))
    ]
    yield Family("steelyard_model_work_seconds", "gauge", "estimated work not done yet", work)
    for name, meaning, field in _HISTOGRAMS:
        times = [
            sample
            for of, totals in known
            if (found := totals.times.get(field)) is not None
            for sample in histogram(of, DURATION_BOUNDS_SECONDS, found.counts, found.total)
        ]
        yield Family(name, "histogram", f"seconds {meaning}", times)


def _status(code: int) -> str:
    return "none" if not code else f"{code}xx" if code < 10 else str(code)
