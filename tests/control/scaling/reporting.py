"""Reports as workers send them."""

from __future__ import annotations

from typing import Any

from steelyard.control.scaling.latencies import bucket
from steelyard.core.slo import INDEX, KINDS
from steelyard.link.messages import ModelReport, Report


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
    promised: float = 0.2,
    **more: Any,
) -> ModelReport:
    """`took`: seconds → answers that took so long; later than `promised` they are late."""
    took = took or {}
    verdicts = {
        "ok": sum(took.values()),
        "client_error": client_error,
        "failed": failed,
        "refused": refused,
        "cancelled": cancelled,
    }
    latency: dict[int, int] = {}
    for seconds, count in took.items():
        latency[bucket(seconds)] = latency.get(bucket(seconds), 0) + count
    judged = [0] * KINDS
    judged[INDEX["met", ""]] = sum(count for seconds, count in took.items() if seconds <= promised)
    judged[INDEX["late", "replica"]] = sum(count for seconds, count in took.items() if seconds > promised)
    judged[INDEX["failed", "replica"]] = failed
    judged[INDEX["refused", "overload"]] = refused
    judged[INDEX["failed", "client"]] = client_error
    judged[INDEX["left", "client"]] = cancelled
    return ModelReport(model, waiting, in_flight, verdicts, latency, **({"judged": {"": judged}} | more))


def of_worker(*models: ModelReport) -> Report:
    return Report(0, models, ())
