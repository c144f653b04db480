# ruff: noqa: RUF009 (`_column` is `dataclasses.field`)
"""One row per scenario, load, policy and scaler: means over the seeds."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from io import StringIO
from math import isnan, nan
from typing import Any

from ..engine.result import RunResult, TokenRecord
from ..run import IDEAL, is_reference
from ..scenario.scaler_spec import FIXED_SCALER, base_scaler
from ..scenario.schema import Scenario
from .formatting import Estimate, estimate, number, percent, rate, ratio, seconds

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}

_Key = tuple[str, float, str, str]  # scenario, load, policy, scaler


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    csv_name: str
    of: Callable[[RunResult], float | None]  # None: there is none in this run
    text: Callable[[Estimate | None], tuple[str, str]]  # value and half-width
    half_width: bool = False  # shown in tables
    meaning: str = ""


def _column(*given: Any, **more: Any) -> Any:
    return field(metadata={"column": Column(*given, **more)})


def _quantile(name: str) -> Callable[[RunResult], float]:
    return lambda run: run.latency.quantile(QUANTILES[name])


def _share(count: Callable[[RunResult], int]) -> tuple[Callable[[RunResult], float], Callable[..., tuple[str, str]]]:
    return lambda run: run.share(count(run)), lambda value: (percent(value), "")


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """Every figure is listed once: the CSV file and all tables follow."""

    scenario: str
    load: float
    policy: str
    scaler: str  # empty: the fleet stays as it is
    seeds: int
    requests: int  # of all seeds, without the warm-up
    p50: Estimate = _column("p50", "p50_s", _quantile("p50"), seconds)
    p90: Estimate = _column("p90", "p90_s", _quantile("p90"), seconds)
    p99: Estimate = _column(
        "p99",
        "p99_s",
        _quantile("p99"),
        seconds,
        half_width=True,
        meaning="as p50 to p99.9: latency that this percentage of the answered requests did not exceed; mean over the "
        "seeds, ± half the width of the 95 % confidence interval (of the other columns: in results.csv)",
    )
    p999: Estimate = _column("p99.9", "p99.9_s", _quantile("p99.9"), seconds, half_width=True)
    mean: Estimate = _column("mean", "mean_s", lambda run: run.latency.mean, seconds)
    p99_to_ideal: Estimate | None = _column(  # None: the ideal was not run
        "p99 ÷ ideal",
        "p99_to_ideal",
        lambda run: None,
        ratio,
        half_width=True,
        meaning="against a central queue that knows every size and speed beforehand; seed by seed",
    )
    within_slo: Estimate | None = _column(  # None: the scenario has no SLO
        "within SLO",
        "within_slo",
        *_share(lambda run: run.within_slo),
        meaning="answered within the SLO and the deadline, of all requests; of engines, also the first token and each "
        "further one in time",
    )
    low_slowdown: Estimate = _column(
        "slowdown ≤ 3",
        "low_slowdown",
        *_share(lambda run: run.low_slowdown),
        meaning="answered within three times the request's own work, of all requests",
    )
    ttft_p50: Estimate | None = _column(  # None from here to `hit_share`: no engines
        "TTFT p50", "ttft_p50_s", lambda run: run.tokens and run.tokens.first_token.quantile(0.5), seconds
    )
    ttft_p99: Estimate | None = _column(
        "TTFT p99",
        "ttft_p99_s",
        lambda run: run.tokens and run.tokens.first_token.quantile(0.99),
        seconds,
        half_width=True,
        meaning="time to first token, from when the request was due, that this percentage of the answered requests did "
        "not exceed",
    )
    tpot_p99: Estimate | None = _column(
        "TPOT p99",
        "tpot_p99_s",
        lambda run: run.tokens and run.tokens.per_token.quantile(0.99),
        seconds,
        half_width=True,
        meaning="time per output token: a request's mean of those after the first",
    )
    hit_share: Estimate | None = _column(
        "cache hits",
        "cache_hits",
        lambda run: run.tokens and run.tokens.hit_share,
        lambda value: (percent(value), ""),
        meaning="share of the prompt tokens that were found in the prefix cache of the engine",
    )
    failed: Estimate = _column(
        "failed", "failed", *_share(lambda run: run.failed), meaning="given up after retries, of all requests"
    )
    refused: Estimate = _column(
        "refused",
        "refused",
        *_share(lambda run: sum(run.refused.values())),
        meaning="turned away with a reason, of all requests",
    )
    throughput: Estimate = _column(
        "requests/s",
        "requests_per_s",
        lambda run: run.throughput,
        rate,
        meaning="until the last one is over, so a backlog at the end lowers it",
    )
    replica_hours: Estimate | None = _column(  # None from here on where the fleet stays as it is
        "replica-hours",
        "replica_hours",
        lambda run: run.fleet and run.fleet.replica_hours,
        number,
        half_width=True,
        meaning="of every replica from the order to start it until it has drained, cold starts included",
    )
    mean_replicas: Estimate | None = _column(
        "mean replicas", "mean_replicas", lambda run: run.fleet and run.fleet.mean_replicas, number
    )
    peak_replicas: Estimate | None = _column(
        "peak",
        "peak_replicas",
        lambda run: run.fleet and run.fleet.peak_replicas,
        number,
        meaning="replicas at once, without those that drain",
    )
    starts: Estimate | None = _column("starts", "starts", lambda run: run.fleet and run.fleet.starts, number)

    @property
    def loss_share(self) -> float:
        return self.failed.mean + self.refused.mean

    @property
    def success_share(self) -> float:
        """Share of requests answered within SLO; without an SLO, answered at all."""
        return self.within_slo.mean if self.within_slo is not None else 1.0 - self.loss_share

    def cell(self, name: str) -> tuple[str, str]:
        column = COLUMNS[name]
        value, half = column.text(getattr(self, name))
        return value, half if column.half_width else ""


COLUMNS: dict[str, Column] = {one.name: one.metadata["column"] for one in fields(SummaryRow) if one.metadata}
COST_COLUMNS = ("replica_hours", "mean_replicas", "peak_replicas", "starts")
POLICY_COLUMNS = tuple(name for name in COLUMNS if name not in COST_COLUMNS)
SCALER_COLUMNS = (*COST_COLUMNS, "p50", "p99", "failed", "refused")


def shown_columns(names: Sequence[str], rows: Sequence[SummaryRow]) -> list[str]:
    """Without those that say nothing: no ideal, no SLO, nothing failed or refused."""

    def says_something(name: str) -> bool:
        values = [getattr(row, name) for row in rows]
        return any(value and (value.mean or name not in ("failed", "refused")) for value in values)

    return [name for name in names if says_something(name)]


def success_title(rows: Sequence[SummaryRow]) -> str:
    return COLUMNS["within_slo"].title if any(one.within_slo for one in rows) else "answered"


def meanings_of(names: Sequence[str]) -> dict[str, str]:
    return {COLUMNS[name].title: COLUMNS[name].meaning for name in names if COLUMNS[name].meaning}


def summarise(results: Iterable[RunResult], with_slo: Collection[str] = ()) -> list[SummaryRow]:
    """In order of first appearance. `with_slo`: scenarios with an SLO."""
    groups: dict[_Key, list[RunResult]] = {}
    for run in results:
        groups.setdefault((run.scenario, run.load, run.policy, run.scaler), []).append(run)
    return [
        _row(runs, _reference(groups, scenario, load), scenario in with_slo)
        for (scenario, load, *_), runs in groups.items()
    ]


def _reference(groups: Mapping[_Key, list[RunResult]], scenario: str, load: float) -> list[RunResult]:
    """The ideal; without one, a perfect placement."""
    known = [policy for s, at, policy, _ in groups if (s, at) == (scenario, load) and is_reference(policy)]
    policy = IDEAL if IDEAL in known else next(iter(known), IDEAL)
    return groups.get((scenario, load, policy, ""), [])


def scenarios_with_slo(scenarios: Iterable[Scenario]) -> set[str]:
    return {s.name for s in scenarios if s.slo is not None or s.workload.deadline is not None or s.has_engines}


def _row(runs: Sequence[RunResult], ideal: Sequence[RunResult], has_slo: bool) -> SummaryRow:
    figures: dict[str, Any] = {}
    for name, column in COLUMNS.items():
        values = [value for run in runs if (value := column.of(run)) is not None]
        figures[name] = estimate(values) if values else None
    figures["p99_to_ideal"] = paired_p99_ratio(runs, ideal)
    if not has_slo:
        figures["within_slo"] = None
    first, requests = runs[0], sum(run.measured_requests for run in runs)
    return SummaryRow(first.scenario, first.load, first.policy, first.scaler, len(runs), requests, **figures)


def paired_p99_ratio(runs: Iterable[RunResult], others: Iterable[RunResult]) -> Estimate | None:
    """p99 ÷ that of others, seed by seed: what makes a seed hard cancels out."""
    other = {run.seed: run.latency.quantile(0.99) for run in others}
    ratios = [run.latency.quantile(0.99) / other[run.seed] for run in runs if other.get(run.seed)]
    return estimate(ratios) if ratios else None


SUCCESS_TOLERANCE = 0.01  # of the requests


def best_p99(rows: Iterable[SummaryRow]) -> SummaryRow | None:
    """Among those that served about as many requests as the best: rejecting the hard half gives a fine p99."""
    able = [row for row in rows if not is_reference(row.policy) and not isnan(row.p99.mean)]
    least = max((row.success_share for row in able), default=0.0) - SUCCESS_TOLERANCE
    return min((row for row in able if row.success_share >= least), key=lambda row: row.p99.mean, default=None)


def best_within_slo(rows: Iterable[SummaryRow]) -> SummaryRow | None:
    """None without an SLO."""
    able = [row for row in rows if not is_reference(row.policy) and row.within_slo and not isnan(row.success_share)]
    return max(able, key=lambda row: row.success_share, default=None)


def rows_csv(rows: Iterable[SummaryRow]) -> str:
    """`…_ci95`: half-width of the confidence interval."""
    header = ["scenario", "load", "policy", "seeds", "requests"]
    for column in COLUMNS.values():
        header += [column.csv_name, f"{column.csv_name}_ci95"]
    lines: list[list[object]] = [[*header, "scaler"]]
    for row in rows:
        line: list[object] = [row.scenario, _number(row.load), row.policy, row.seeds, row.requests]
        for name in COLUMNS:
            value = getattr(row, name) or Estimate(nan)
            line += [_number(value.mean), _number(value.half_width)]
        lines.append([*line, row.scaler])
    return to_csv(lines)


def runs_csv(results: Iterable[RunResult]) -> str:
    table: list[dict[str, object]] = []
    for run in results:
        table.append(
            {
                "scenario": run.scenario,
                "load": _number(run.load),
                "policy": run.policy,
                "seed": run.seed,
                "requests": run.measured_requests,
                "answered": run.latency.count,
                **{f"{name}_s": _number(run.latency.quantile(q)) for name, q in QUANTILES.items()},
                "mean_s": _number(run.latency.mean),
                "max_s": _number(run.latency.maximum),
                "within_slo": run.within_slo,
                "low_slowdown": run.low_slowdown,
                "failed": run.failed,
                "refused": sum(run.refused.values()),
                "refused_reasons": " ".join(f"{reason}={count}" for reason, count in sorted(run.refused.items())),
                **_token_figures(run.tokens),
                "requests_per_s": _number(run.throughput),
                "simulated_s": _number(run.seconds),
                "replica_seconds": _number(run.fleet.replica_seconds) if run.fleet else "",
                "starts": run.fleet.starts if run.fleet else "",
                "scaler": run.scaler,
            }
        )
    return to_csv([*(list(line) for line in table[:1]), *(list(line.values()) for line in table)])


def _token_figures(tokens: TokenRecord | None) -> dict[str, str]:
    def figure(of: Callable[[TokenRecord], float]) -> str:
        return _number(of(tokens)) if tokens is not None else ""

    return {
        "ttft_p50_s": figure(lambda record: record.first_token.quantile(0.5)),
        "ttft_p99_s": figure(lambda record: record.first_token.quantile(0.99)),
        "tpot_p99_s": figure(lambda record: record.per_token.quantile(0.99)),
        "prompt_tokens": figure(lambda record: record.prompt_tokens),
        "cached_tokens": figure(lambda record: record.cached_tokens),
        "output_tokens": figure(lambda record: record.output_tokens),
    }


def _number(value: float) -> str:
    return "" if isnan(value) else str(value) if isinstance(value, int) else f"{value:.6g}"


def to_csv(lines: Iterable[Sequence[object]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def mean_replica_hours(row: SummaryRow) -> float:
    assert row.replica_hours is not None
    return row.replica_hours.mean


def dominates(one: SummaryRow, other: SummaryRow) -> bool:
    """At least as good in both, and better in one."""
    as_good = one.success_share >= other.success_share and mean_replica_hours(one) <= mean_replica_hours(other)
    return as_good and (one.success_share > other.success_share or mean_replica_hours(one) < mean_replica_hours(other))


def is_scaler(row: SummaryRow) -> bool:
    """A fixed fleet is none: its size must be known beforehand."""
    return base_scaler(row.scaler) != FIXED_SCALER


def pareto_front(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    able = [row for row in rows if is_scaler(row)]
    return sorted((row for row in able if not any(dominates(other, row) for other in able)), key=mean_replica_hours)
