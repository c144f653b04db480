"""Reports as workers send them."""

from __future__ import annotations

from math import log
from typing import Any

from steelyard.core.slo.verdicts import VERDICT_COUNT, VERDICT_INDEX
from steelyard.core.statistics.histogram import BUCKET_COUNT, BUCKET_OFFSET, BUCKETS_PER_LN, MIN_BUCKET_SECONDS
from steelyard.link.messages import ModelReport, WorkerReport


def bucket_of(seconds: float) -> int:
    """Where a worker's histogram counts it."""
    index = int(log(seconds) * BUCKETS_PER_LN + BUCKET_OFFSET) if seconds > MIN_BUCKET_SECONDS else 0
    return min(index, BUCKET_COUNT - 1)


def report(
    model: str = "m",
    *,
    took: dict[float, int] | None = None,
    waiting: int = 0,
    in_flight: int = 0,
    failed: int = 0,
    refused: int = 0,
    client_error: int = 0,
    cancelled: int = 0,
    target: float = 0.2,
    **more: Any,
) -> ModelReport:
    """`took`: seconds → answers that took so long; later than `target` they are late."""
    took = took or {}
    outcomes = {
        "ok": sum(took.values()),
        "client_error": client_error,
        "failed": failed,
        "refused": refused,
        "cancelled": cancelled,
    }
    latency: dict[int, int] = {}
    for seconds, count in took.items():
        latency[bucket_of(seconds)] = latency.get(bucket_of(seconds), 0) + count
    judged = [0] * VERDICT_COUNT
    judged[VERDICT_INDEX["met", ""]] = sum(count for seconds, count in took.items() if seconds <= target)
    judged[VERDICT_INDEX["late", "replica"]] = sum(count for seconds, count in took.items() if seconds > target)
    judged[VERDICT_INDEX["failed", "replica"]] = failed
    judged[VERDICT_INDEX["refused", "overload"]] = refused
    judged[VERDICT_INDEX["failed", "client"]] = client_error
    judged[VERDICT_INDEX["abandoned", "client"]] = cancelled
    return ModelReport(model, waiting, in_flight, outcomes, latency, **({"slo_verdicts": {"": judged}} | more))


def of_worker(*models: ModelReport) -> WorkerReport:
    return WorkerReport(0, models, ())
