"""A report for programs: CSV with a row for each step, model, tenant and SLO; JSON with what people are shown."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from math import isfinite
from typing import Any

from ...control.history.slices import VERDICT_KEYS, Slice, quantile
from ...control.history.summary import QUANTILES, ObjectiveSummary, ReportRow, Summary
from .text import safe_cell


def _count(verdict: str, part: Slice) -> int:
    return part.counts.get(verdict, 0)


def _latency(q: float, part: Slice) -> str | None:
    return f"{quantile(part.latency, q):.6f}" if part.latency else None


CSV_COLUMNS: dict[str, Callable[[Slice], object]] = {
    "start": lambda part: _time(part.start),
    "step_seconds": lambda part: part.step,
    "running_minutes": lambda part: part.ran,
    "model": lambda part: safe_cell(part.model),
    "tenant": lambda part: safe_cell(part.tenant),
    "slo_latency_s": lambda part: part.slo.latency,
    "slo_percentile": lambda part: part.slo.percentile if part.slo.timed else None,
    "slo_availability": lambda part: part.slo.availability,
    "slo_first_byte_s": lambda part: part.slo.first_byte,
    "slo_per_token_s": lambda part: part.slo.per_token,
    "requests": lambda part: sum(part.counts.values()),
    **{name.replace("/", "_"): partial(_count, name) for name in VERDICT_KEYS},
    "model_answered": lambda part: sum(part.latency.values()) if part.latency else None,
    **{f"model_p{q * 100:g}_s": partial(_latency, q) for q in QUANTILES},
}


def as_csv(summary: Summary) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows([value(part) for value in CSV_COLUMNS.values()] for part in summary.slices)
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


def _row(row: ReportRow, summary: Summary) -> dict[str, Any]:
    worst: dict[str, Any] | None = None
    if row.worst:
        start, percent = row.worst
        worst = {"start": _time(start), "seconds": summary.worst_step, "attained_percent": round(percent, 6)}
    objectives = [_objective(objective) for objective in row.objectives]
    return {"requests": row.requests, "counts": row.counts, "objectives": objectives, "worst": worst}


def _objective(objective: ObjectiveSummary) -> dict[str, Any]:
    return {
        "kind": objective.kind,
        "description": objective.words,
        "target_percent": objective.target,
        "good": objective.good,
        "bad": objective.bad,
        "attained_percent": _number(objective.attained),
        "met": objective.met,
        "budget_used": _number(objective.budget_used),
    }


def _number(value: float) -> float | None:
    return round(value, 6) if isfinite(value) else None


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
