"""A report for programs: CSV with a row for each step, model, tenant and promise; JSON with what people are shown."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from io import StringIO
from math import isfinite
from typing import Any

from ...control.history.slices import VERDICT_KEYS, quantile
from ...control.history.summary import QUANTILES, ObjectiveSummary, Summary, SummaryRow
from .text import safe_cell

CSV_COLUMNS = (
    "start",
    "step_seconds",
    "running_minutes",
    "model",
    "tenant",
    "slo_latency_s",
    "slo_percentile",
    "slo_availability",
    "slo_first_byte_s",
    "requests",
    *(name.replace("/", "_") for name in VERDICT_KEYS),
    "model_answered",
    *(f"model_p{q * 100:g}_s" for q in QUANTILES),
)


def as_csv(summary: Summary) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for part in summary.slices:
        promised = part.promised
        writer.writerow(
            [
                _time(part.start),
                part.step,
                part.ran,
                safe_cell(part.model),
                safe_cell(part.tenant),
                _or_empty(promised.latency),
                promised.percentile if promised.timed else "",
                _or_empty(promised.availability),
                _or_empty(promised.first_byte),
                sum(part.counts.values()),
                *(part.counts.get(name, 0) for name in VERDICT_KEYS),
                sum(part.latency.values()) if part.latency else "",
                *(f"{quantile(part.latency, q):.6f}" if part.latency else "" for q in QUANTILES),
            ]
        )
    return text.getvalue()


def as_json(summary: Summary) -> str:
    plain = {
        "since": _time(summary.since),
        "until": _time(summary.until),
        "gaps": [{"since": _time(a), "until": _time(b), "minutes": minutes} for a, b, minutes in summary.gaps],
        "models": [
            {
                "model": model.name,
                "latency_s": {f"p{q * 100:g}": _number(s) for q, s in zip(QUANTILES, model.quantiles, strict=True)},
                "all_tenants": _row(model.whole, summary),
                "tenants": [{"tenant": row.tenant, **_row(row, summary)} for row in model.tenants],
            }
            for model in summary.models
        ],
    }
    return json.dumps(plain, indent=2).replace("\x7f", "\\u007f") + "\n"  # all ASCII: a terminal obeys nothing of it


def _row(row: SummaryRow, summary: Summary) -> dict[str, Any]:
    worst = row.worst and {
        "start": _time(row.worst[0]),
        "seconds": summary.worst_step,
        "attained_percent": round(row.worst[1], 6),
    }
    return {
        "requests": row.requests,
        "counts": row.counts,
        "objectives": [_objective(objective) for objective in row.objectives],
        "worst": worst,
    }


def _objective(objective: ObjectiveSummary) -> dict[str, Any]:
    return {
        "kind": objective.kind,
        "description": objective.words,
        "target_percent": objective.target,
        "good": objective.good,
        "bad": objective.bad,
        "attained_percent": _number(objective.attained),
        "kept": objective.kept,
        "budget_used": _number(objective.budget_used),
    }


def _number(value: float) -> float | None:
    return round(value, 6) if isfinite(value) else None


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _or_empty(value: float | None) -> float | str:
    return "" if value is None else value
