"""From the arena's runs to its tables, and the goals checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan
from typing import Any

from rich.console import Console
from rich.table import Table

from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.report.formatting import Estimate
from steelyard.simulate.report.summary import QUANTILES, SummaryRow, paired_p99_ratio, summarise
from steelyard.simulate.run import IDEAL

from ..load.contests import Contest
from ..testbed.docs_pages import markdown_table
from ..testbed.rounds import verdict

MAX_LAG_SECONDS = (
    0.005  # seconds, p99: above, the generator or the mock replicas were too busy and the run says nothing
)
OURS = "steelyard-queue"
COMPETITORS = ("nginx", "haproxy", "haproxy-queue", "envoy")
QUEUE = "haproxy-queue"
GOAL_WORKERS_P99_RATIO = 1.05  # p99 of several workers ÷ that of one
GOAL_UNEVEN_P99_RATIO = 0.7  # p99 ÷ the best rival's
GOAL_EVEN_P99_RATIO = 1.05  # p99 ÷ that of HAProxy's queue
HEADER = ["proxy", "p50 ms", "p99 ms", "p99.9 ms", "p99 ÷ ideal", "goodput", "failed", "valid runs"]


@dataclass
class Scores:
    names: list[str]
    missing: list[str]
    results: list[RunResult] = field(default_factory=list)
    late: list[RunResult] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)

    def add(self, result: RunResult, lag: float = 0.0, statuses: dict[str, int] | None = None) -> None:
        (self.results if lag <= MAX_LAG_SECONDS else self.late).append(result)
        self.notes.append({"lag_p99": lag, "statuses": statuses or {}, **figures(result)})

    def within(self, contest: Contest, *, late: bool = False) -> list[RunResult]:
        where = (contest.scenario.name, contest.load)
        return [r for r in (self.late if late else self.results) if (r.scenario, r.load) == where]

    def of(self, contest: Contest, name: str) -> list[RunResult]:
        return [result for result in self.within(contest) if result.policy == name]

    def raw(self) -> list[dict[str, Any]]:
        return self.notes

    def rows(self, contest: Contest) -> list[list[str]]:
        known = {row.policy: row for row in summarise(self.within(contest))}
        late = [r.policy for r in self.within(contest, late=True)]
        lines = []
        for name in (IDEAL, *self.names):
            if name in known:
                lines.append([name, *cells(known[name], late.count(name))])
            else:
                reason = "did not run" if name in self.broken else "benchmark late"
                lines.append([name, reason, *[""] * (len(HEADER) - 2)])
        return lines + [[name, "not installed", *[""] * (len(HEADER) - 2)] for name in self.missing]

    def verdicts(self, contest: Contest) -> list[str]:
        lines = [
            self.compare(contest, name, OURS, GOAL_WORKERS_P99_RATIO)
            for name in self.names
            if name.startswith(f"{OURS}, ") and self.of(contest, name)
        ]
        ours = self.of(contest, OURS)
        if not ours or not contest.goal:
            return lines
        if contest.goal == "even":
            return [*lines, *([self.compare(contest, OURS, QUEUE, GOAL_EVEN_P99_RATIO)] if QUEUE in self.names else [])]
        p99 = {row.policy: row.p99.mean for row in summarise(self.within(contest))}
        best = min((name for name in COMPETITORS if name in p99), key=lambda name: p99[name], default=None)
        return lines if best is None else [*lines, self.compare(contest, OURS, best, GOAL_UNEVEN_P99_RATIO)]

    def compare(self, contest: Contest, name: str, competitor: str, limit: float) -> str:
        """Over the seeds in which both runs were valid."""
        ours, theirs = self.of(contest, name), self.of(contest, competitor)
        both = len({run.seed for run in ours} & {run.seed for run in theirs})
        ratio = paired_p99_ratio(ours, theirs) or Estimate(float("nan"))
        spread = f"{both} seed{'s' * (both != 1)}" + ("" if isnan(ratio.half_width) else f", ± {ratio.half_width:.2f}")
        return verdict(f"{contest.title}: p99 of {name} ÷ {competitor}'s ({spread})", ratio.mean, limit)

    def show(self, console: Console, contests: list[Contest]) -> None:
        for contest in contests:
            table = Table(title=contest.title)
            for place, name in enumerate(HEADER):
                table.add_column(name, justify="right" if place else "left")
            for row in self.rows(contest):
                table.add_row(*row)
            console.print(table)
            for line in self.verdicts(contest):
                console.print(line, markup=False, highlight=False)
        for name, problem in self.broken.items():
            console.print(f"{name}: {problem}", markup=False, highlight=False)

    def markdown(self, contests: list[Contest]) -> str:
        parts = []
        for contest in contests:
            parts += ["", f"**{contest.title}**", "", markdown_table(HEADER, self.rows(contest))]
            parts += ["", *(f"- {line}" for line in self.verdicts(contest))]
        return "\n".join(parts)


def cells(row: SummaryRow, late: int) -> list[str]:
    return [
        milliseconds(row.p50),
        milliseconds(row.p99),
        milliseconds(row.p999),
        f"{row.p99_to_ideal.mean:.2f}" if row.p99_to_ideal is not None else "",
        f"{row.low_slowdown.mean:.1%}",
        f"{row.failed.mean:.2%}",
        str(row.seeds) + (f" of {row.seeds + late}" if late else ""),
    ]


def milliseconds(estimate: Estimate) -> str:
    half = "" if isnan(estimate.half_width) else f" ± {1000 * estimate.half_width:,.0f}"
    return f"{1000 * estimate.mean:,.0f}{half}"


def figures(result: RunResult) -> dict[str, Any]:
    return {
        "scenario": result.scenario,
        "load": result.load,
        "peer": result.policy,
        "seed": result.seed,
        "requests": result.measured_requests,
        **{f"{name}_s": result.latency.quantile(q) for name, q in QUANTILES.items()},
        "goodput": result.share(result.low_slowdown),
        "failed": result.share(result.failed),
        "served": result.served,
    }
