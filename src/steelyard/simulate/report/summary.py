"""From many runs to one row per scenario, load, policy and scaler: means over the seeds, with their 95 % confidence."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from math import isnan, nan, sqrt

from ..engine.result import FleetRecord, RunResult
from ..run import IDEAL, is_reference
from ..scenario.scaler_spec import FIXED_SCALER, base_scaler
from ..scenario.schema import Scenario

# Student's t, two-sided 95 %, for 1, 2, … 30 degrees of freedom; beyond, that of fewer degrees, on the safe side.
_STUDENT_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_STUDENT_T_95_LARGE = ((120, 1.980), (60, 2.000), (40, 2.021), (31, 2.042))

_Key = tuple[str, float, str, str]  # scenario, load, policy, scaler

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and the half-width of its 95 % confidence interval: nan with a single seed."""

    mean: float
    half_width: float = nan


@dataclass(frozen=True, slots=True)
class SummaryRow:
    scenario: str
    load: float
    policy: str
    seeds: int
    requests: int  # of all seeds, without the warm-up
    p50: Estimate  # seconds, of the requests that were answered
    p90: Estimate
    p99: Estimate
    p999: Estimate
    mean: Estimate
    p99_to_ideal: Estimate | None  # p99 ÷ the ideal's, paired by seed; None when the ideal was not run
    within_slo: Estimate | None  # answered within SLA and deadline; None when nothing was promised
    low_slowdown: Estimate  # answered within three times their own work
    failed: Estimate
    refused: Estimate
    throughput: Estimate  # requests a second, until the last is over
    scaler: str = ""  # empty: the fleet stays as it is, and what follows is None
    replica_hours: Estimate | None = None  # replica-hours, cold starts included
    mean_replicas: Estimate | None = None  # on average
    peak_replicas: Estimate | None = None  # at once
    starts: Estimate | None = None

    @property
    def loss_share(self) -> float:
        return self.failed.mean + self.refused.mean

    @property
    def success_share(self) -> float:
        """Share of requests that were served as promised; where nothing was promised, that were served."""
        return self.within_slo.mean if self.within_slo is not None else 1.0 - self.loss_share


def summarise(results: Iterable[RunResult], promising: Collection[str] = ()) -> list[SummaryRow]:
    """One row per scenario, load, policy and scaler, in order of first appearance. `promising` have an SLA."""
    groups: dict[_Key, list[RunResult]] = {}
    for run in results:
        groups.setdefault((run.scenario, run.load, run.policy, run.scaler), []).append(run)
    return [
        _row(runs, _reference(groups, scenario, load), scenario in promising)
        for (scenario, load, *_), runs in groups.items()
    ]


def _reference(groups: Mapping[_Key, list[RunResult]], scenario: str, load: float) -> list[RunResult]:
    """The ideal; where there is none, a placement that knew everything before."""
    known = [policy for s, at, policy, _ in groups if (s, at) == (scenario, load) and is_reference(policy)]
    policy = IDEAL if IDEAL in known else next(iter(known), IDEAL)
    return groups.get((scenario, load, policy, ""), [])


def scenarios_with_slo(scenarios: Iterable[Scenario]) -> set[str]:
    """The names of those that promise a latency."""
    return {s.name for s in scenarios if s.slo is not None or s.workload.deadline is not None}


def _row(runs: Sequence[RunResult], ideal: Sequence[RunResult], promised: bool) -> SummaryRow:
    first = runs[0]

    def over(value: Callable[[RunResult], float]) -> Estimate:
        return estimate([value(run) for run in runs])

    def quantile(q: float) -> Estimate:
        return over(lambda run: run.latency.quantile(q))

    def of_fleet(value: Callable[[FleetRecord], float]) -> Estimate | None:
        fleets = [run.fleet for run in runs if run.fleet is not None]
        return estimate([value(fleet) for fleet in fleets]) if fleets else None

    return SummaryRow(
        scenario=first.scenario,
        load=first.load,
        policy=first.policy,
        seeds=len(runs),
        requests=sum(run.measured_requests for run in runs),
        p50=quantile(QUANTILES["p50"]),
        p90=quantile(QUANTILES["p90"]),
        p99=quantile(QUANTILES["p99"]),
        p999=quantile(QUANTILES["p99.9"]),
        mean=over(lambda run: run.latency.mean),
        p99_to_ideal=paired_p99_ratio(runs, ideal),
        within_slo=over(lambda run: run.share(run.within_slo)) if promised else None,
        low_slowdown=over(lambda run: run.share(run.low_slowdown)),
        failed=over(lambda run: run.share(run.failed)),
        refused=over(lambda run: run.share(sum(run.refused.values()))),
        throughput=over(lambda run: run.throughput),
        scaler=first.scaler,
        replica_hours=of_fleet(lambda fleet: fleet.replica_hours),
        mean_replicas=of_fleet(lambda fleet: fleet.mean_replicas),
        peak_replicas=of_fleet(lambda fleet: fleet.peak_replicas),
        starts=of_fleet(lambda fleet: fleet.starts),
    )


def paired_p99_ratio(runs: Iterable[RunResult], others: Iterable[RunResult]) -> Estimate | None:
    """p99 of some runs ÷ that of others, seed by seed: a seed with a hard minute is hard for both, and cancels out."""
    other = {run.seed: run.latency.quantile(0.99) for run in others}
    ratios = [run.latency.quantile(0.99) / other[run.seed] for run in runs if other.get(run.seed)]
    return estimate(ratios) if ratios else None


def estimate(values: Sequence[float]) -> Estimate:
    n = len(values)
    if not n:
        return Estimate(nan)
    mean = sum(values) / n
    if n == 1:
        return Estimate(mean)
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    return Estimate(mean, student_t(n - 1) * sqrt(variance / n))


def student_t(freedom: int) -> float:
    if freedom <= len(_STUDENT_T_95):
        return _STUDENT_T_95[freedom - 1]
    return next(t for least, t in _STUDENT_T_95_LARGE if freedom >= least)


# ---------------------------------------------------------------------- reading the rows

SUCCESS_TOLERANCE = 0.01  # of the requests


def best_p99(rows: Iterable[SummaryRow]) -> SummaryRow | None:
    """Of one scenario and load: the policy with the lowest p99, references aside.

    Only among those that served about as many requests well as the one that served most: who sends the hard half of
    the work away, or fails it, has a fine p99.
    """
    able = [row for row in rows if not is_reference(row.policy) and not isnan(row.p99.mean)]
    most = max((row.success_share for row in able), default=0.0)
    return min(
        (row for row in able if row.success_share >= most - SUCCESS_TOLERANCE),
        key=lambda row: row.p99.mean,
        default=None,
    )


def best_within_slo(rows: Iterable[SummaryRow]) -> SummaryRow | None:
    """The policy that kept its promise most often, where one was made."""
    able = [
        (row.within_slo.mean, row)
        for row in rows
        if not is_reference(row.policy) and row.within_slo and not isnan(row.within_slo.mean)
    ]
    return max(able, key=lambda pair: pair[0])[1] if able else None


# ---------------------------------------------------------------------- files

_CSV_ESTIMATES: dict[str, Callable[[SummaryRow], Estimate | None]] = {
    "p50_s": lambda row: row.p50,
    "p90_s": lambda row: row.p90,
    "p99_s": lambda row: row.p99,
    "p99.9_s": lambda row: row.p999,
    "mean_s": lambda row: row.mean,
    "p99_to_ideal": lambda row: row.p99_to_ideal,
    "met": lambda row: row.within_slo,
    "prompt": lambda row: row.low_slowdown,
    "failed": lambda row: row.failed,
    "refused": lambda row: row.refused,
    "requests_per_s": lambda row: row.throughput,
    "replica_hours": lambda row: row.replica_hours,
    "mean_replicas": lambda row: row.mean_replicas,
    "most_replicas": lambda row: row.peak_replicas,
    "starts": lambda row: row.starts,
}


def rows_csv(rows: Iterable[SummaryRow]) -> str:
    """One line per row. `…_ci95` is the half-width of the confidence interval; empty where there is none."""
    header = ["scenario", "load", "policy", "seeds", "requests"]
    for name in _CSV_ESTIMATES:
        header += [name, f"{name}_ci95"]
    header.append("scaler")
    lines: list[list[str]] = [header]
    for row in rows:
        line = [row.scenario, _number(row.load), row.policy, str(row.seeds), str(row.requests)]
        for get in _CSV_ESTIMATES.values():
            value = get(row) or Estimate(nan)
            line += [_number(value.mean), _number(value.half_width)]
        lines.append([*line, row.scaler])
    return _csv(lines)


def runs_csv(results: Iterable[RunResult]) -> str:
    """One line per run: seed by seed."""
    header = ["scenario", "load", "policy", "seed", "requests", "answered"]
    header += [*(f"{name}_s" for name in QUANTILES), "mean_s", "max_s", "met", "prompt", "failed", "refused"]
    header += ["refused_why", "requests_per_s", "simulated_s", "replica_seconds", "starts", "scaler"]
    lines: list[list[str]] = [header]
    for run in results:
        why = " ".join(f"{reason}={count}" for reason, count in sorted(run.refused.items()))
        lines.append(
            [
                run.scenario,
                _number(run.load),
                run.policy,
                str(run.seed),
                str(run.measured_requests),
                str(run.latency.count),
            ]
            + [_number(run.latency.quantile(q)) for q in QUANTILES.values()]
            + [_number(run.latency.mean), _number(run.latency.maximum)]
            + [str(run.within_slo), str(run.low_slowdown), str(run.failed), str(sum(run.refused.values())), why]
            + [_number(run.throughput), _number(run.seconds)]
            + ([_number(run.fleet.replica_seconds), str(run.fleet.starts)] if run.fleet is not None else ["", ""])
            + [run.scaler]
        )
    return _csv(lines)


def _number(value: float) -> str:
    return "" if isnan(value) else f"{value:.6g}"


def _csv(lines: Iterable[Sequence[str]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


# Who keeps the promise for the least: scalers compared by what they keep and what that costs.


def mean_replica_hours(row: SummaryRow) -> float:
    assert row.replica_hours is not None
    return row.replica_hours.mean


def dominates(one: SummaryRow, other: SummaryRow) -> bool:
    """At least as good in both, and better in one."""
    as_good = one.success_share >= other.success_share and mean_replica_hours(one) <= mean_replica_hours(other)
    return as_good and (one.success_share > other.success_share or mean_replica_hours(one) < mean_replica_hours(other))


def is_scaler(row: SummaryRow) -> bool:
    """A fixed fleet is none: nobody knows the right number before."""
    return base_scaler(row.scaler) != FIXED_SCALER


def pareto_front(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """The scalers that none of the others beats, cheapest first."""
    able = [row for row in rows if is_scaler(row)]
    return sorted((row for row in able if not any(dominates(other, row) for other in able)), key=mean_replica_hours)
