"""All policies on the workloads that decide (W1–W4, W8): p99 against the ideal, with confidence, and the goals checked.

    python -m benchmarks.policies [--workloads W1,W2] [--requests 15000] [--seeds 5] [--update-docs]

`--update-docs` writes the tables into docs/policies.md. About twenty minutes on two cores as it stands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from math import isnan

import msgspec
from rich.console import Console
from rich.progress import Progress

from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.report.summary import SummaryRow, summarise
from steelyard.simulate.run import run_all, tasks
from steelyard.simulate.scenario import catalog
from steelyard.simulate.scenario.schema import Scenario

from .testbed.docs_pages import markdown_table, write_section
from .testbed.machine import describe

POLICIES = tuple(policy for policy in catalog.CLASSIC_POLICIES if policy != "random")  # random: round robin, but worse
FLAGSHIP = "least_work@1"
IDEAL_GOALS = ((0.7, 1.15), (0.85, 1.3), (0.95, 1.5))
GOAL_UNEVEN_GAIN = 0.2  # uneven: at least this much below the best other policy
GOAL_EVEN_LOSS = 0.02  # even, or features that say nothing: at most this much worse


def scenarios(names: Sequence[str], requests: int, seeds: int) -> list[Scenario]:
    return [
        msgspec.structs.replace(scenario, requests=requests, seeds=seeds, policies=POLICIES)
        for name in names
        for scenario in catalog.find_scenarios(name)
    ]


def is_even(scenario: Scenario) -> bool:
    """Replicas alike, or nothing to know about the requests."""
    return len({group.speed for group in scenario.fleet}) == 1 or scenario.workload.features == 0.0


def ratio(row: SummaryRow) -> str:
    assert row.p99_to_ideal is not None
    half = "" if isnan(row.p99_to_ideal.half_width) else f" ± {row.p99_to_ideal.half_width:.2f}"
    return f"{row.p99_to_ideal.mean:.2f}{half}"


def cell(row: SummaryRow) -> str:
    return f"{row.p99.mean * 1000:.0f} ms" if row.policy == "ideal" else ratio(row)


def tables(rows: list[SummaryRow], todo: list[Scenario]) -> tuple[str, list[list[str]]]:
    """The tables as Markdown, and a row for each goal that was missed."""
    out: list[str] = []
    missed: list[list[str]] = []
    for scenario in todo:
        mine = {(row.load, row.policy): row for row in rows if row.scenario == scenario.name}
        loads = list(scenario.loads)
        out += ["", f"**{scenario.name}**", ""]
        lines = []
        for policy in POLICIES:
            name = f"**{policy}**" if policy == FLAGSHIP else policy
            lines.append([name, *(cell(mine[load, policy]) for load in loads)])
        out.append(markdown_table(["policy", *(f"{load:.0%}" for load in loads)], lines))
        for load in loads:
            missed += goals_missed(scenario, load, {policy: mine[load, policy] for policy in POLICIES})
    return "\n".join(out), missed


def goals_missed(scenario: Scenario, load: float, rows: dict[str, SummaryRow]) -> list[list[str]]:
    missed = []
    ours = rows[FLAGSHIP]
    assert ours.p99_to_ideal is not None
    where = [scenario.name, f"{load:.0%}"]
    goal = next((limit for at, limit in IDEAL_GOALS if load <= at), None)
    if goal is not None and ours.p99_to_ideal.mean > goal:
        missed.append([*where, "ideal", f"{ratio(ours)} ×", f"≤ {goal} ×", ""])
    others = {p: r.p99.mean for p, r in rows.items() if p != "ideal" and not p.startswith("least_work")}
    ideal = rows["ideal"].p99.mean
    for field in (
        {p: x for p, x in others.items() if "@" not in p},  # as usually run
        {p: x for p, x in others.items() if "@" in p},  # behind the same queue
    ):
        best = min(field, key=lambda p: field[p])
        against = ours.p99.mean / field[best]
        if is_even(scenario):
            if against > 1 + GOAL_EVEN_LOSS:
                missed.append([*where, best, signed(against), f"≤ {signed(1 + GOAL_EVEN_LOSS)}", ""])
        elif against > 1 - GOAL_UNEVEN_GAIN:
            possible = ideal / field[best]
            shown = signed(possible) if possible >= 1 - GOAL_UNEVEN_GAIN else ""
            missed.append([*where, best, signed(against), f"≤ {signed(1 - GOAL_UNEVEN_GAIN)}", shown])
    return missed


def signed(relative: float) -> str:
    """1.02 as +2%, 0.9 as −10%."""
    return f"{relative - 1:+.0%}".replace("-", "−")


def run(todo: list[Scenario], processes: int) -> list[RunResult]:
    work = [task for scenario in todo for task in tasks(scenario)]
    with Progress() as progress:
        bar = progress.add_task("simulating", total=len(work))
        return run_all(work, processes=processes, done=lambda _: progress.advance(bar))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workloads", default="W1,W2,W3,W4,W8")
    parser.add_argument("--requests", type=int, default=15_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--update-docs", action="store_true")
    arguments = parser.parse_args()
    todo = scenarios(arguments.workloads.split(","), arguments.requests, arguments.seeds)
    command = f"python -m benchmarks.policies --workloads {arguments.workloads} --requests {arguments.requests}"
    machine = describe(f"{command} --seeds {arguments.seeds}")  # now: the commit may change while it runs
    rows = summarise(run(todo, arguments.jobs))
    body, missed = tables(rows, todo)
    checked = sum(len(scenario.loads) for scenario in todo)
    verdict = [f"All goals met over {checked} points."]
    if missed:
        verdict = [
            f"{len(missed)} goals missed over {checked} points. p99 against the ideal's, or against that of the best",
            "other policy: without `@` as usually run, with `@` behind the same queue. The last column is the ideal",
            "where it misses the goal too.",
            "",
            markdown_table(["workload", "load", "against", "p99", "goal", "ideal"], missed),
        ]
    text = "\n".join(
        [
            f"Measured {machine}.",
            "",
            "p99 as a multiple of the ideal's, mean over seeds ± half the 95 % confidence interval; the first row",
            "is the ideal's p99 itself. Policies without `@` let the replicas queue, as they are usually run; `@1`",
            "means that a replica takes one request at a time and the rest wait in the balancer.",
            body,
            "",
            *verdict,
        ]
    ).rstrip()
    Console(width=150).print(text, markup=False, highlight=False)
    if arguments.update_docs:
        write_section("policies.md", "benchmarks/policies.py", text)


if __name__ == "__main__":
    main()
