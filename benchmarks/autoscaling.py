"""Scalers compared in the simulator (A1–A5): SLO attainment against replica-hours, and whether `work` is beaten.

    python -m benchmarks.autoscaling [--workloads A1,A2] [--seeds 3] [--no-sweep] [--update-docs] [--markdown FILE]

Each scaler with its defaults over all seeds, and each one's own knob over the first seed. `--update-docs` writes the
tables into docs/autoscaling.md and the chart into docs/autoscaling.svg. Less than ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.report.summary import scenarios_with_slo, summarise
from steelyard.simulate.run import Task, check_scenario, run_all, tasks
from steelyard.simulate.scenario.catalog import find_scenarios
from steelyard.simulate.scenario.schema import Scenario

from .scores.autoscaling import markdown
from .scores.autoscaling_chart import chart
from .testbed.docs_pages import DOCS, write_section
from .testbed.machine import describe

PAGE, SECTION, CHART = "autoscaling.md", "benchmarks/autoscaling.py", "autoscaling.svg"
WORKLOADS = "A1,A2,A3,A4,A5"
SCALERS = ("work", "kpa", "hpa")
SWEPT_SCALERS = (
    *(f"work@headroom={headroom}" for headroom in (0.5, 1.0, 2.0, 3.0)),
    *(f"{name}@target={target}" for name in ("kpa", "hpa") for target in (0.5, 0.6, 0.8, 0.9)),
)


def scenarios(names: Sequence[str], seeds: int) -> list[Scenario]:
    found = [scenario for name in names for scenario in find_scenarios(name)]
    return [msgspec.structs.replace(scenario, seeds=seeds) for scenario in found]


def plan(scenario: Scenario, *, sweep: bool) -> list[Task]:
    """The defaults over all seeds; a sweep is for the shape of a curve, and one seed shows that."""
    assert scenario.autoscale is not None
    defaults = msgspec.structs.replace(scenario.autoscale, scalers=SCALERS)
    todo = tasks(msgspec.structs.replace(scenario, autoscale=defaults))
    if sweep:
        swept = msgspec.structs.replace(scenario.autoscale, scalers=SWEPT_SCALERS)
        todo += tasks(msgspec.structs.replace(scenario, autoscale=swept, seeds=1))
    return todo


def run(todo: list[Task], processes: int) -> list[RunResult]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        bar = progress.add_task("simulating", total=len(todo))

        def done(result: RunResult) -> None:
            progress.update(bar, advance=1, description=f"{result.scenario.partition(' ')[0]} {result.scaler}")

        return run_all(todo, processes=processes, done=done)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workloads", default=WORKLOADS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-sweep", action="store_true", help="each scaler with its defaults only")
    parser.add_argument("--update-docs", action="store_true", help=f"write into docs/{PAGE} and docs/{CHART}")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="write the chart there, as SVG")
    return parser.parse_args()


def check_page() -> None:
    """Before minutes of simulating: is there a place for what it will say?"""
    page = DOCS / PAGE
    if not page.exists() or f"<!-- begin: {SECTION} -->" not in page.read_text(encoding="utf-8"):
        raise SystemExit(f"docs/{PAGE} has no section `<!-- begin: {SECTION} -->` … `<!-- end: {SECTION} -->`")


def command(options: argparse.Namespace) -> str:
    words = ["python -m benchmarks.autoscaling"]
    words += [f"--workloads {options.workloads}"] if options.workloads != WORKLOADS else []
    words += ["--no-sweep"] if options.no_sweep else []
    return " ".join([*words, f"--seeds {options.seeds}"])


def main() -> None:
    options = arguments()
    if options.update_docs:
        check_page()
    machine = describe(command(options))  # now: the commit may change while it runs
    chosen = scenarios(options.workloads.split(","), options.seeds)
    for scenario in chosen:
        check_scenario(scenario)
    # the longest first, so that no process is left alone with one at the end
    todo = [task for scenario in reversed(chosen) for task in plan(scenario, sweep=not options.no_sweep)]
    rows = summarise(run(todo, options.jobs), scenarios_with_slo(chosen))
    text = markdown(chosen, rows, machine)
    Console(width=150).print(text, markup=False, highlight=False)
    if options.markdown is not None:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    if options.chart is not None:
        options.chart.write_text(chart(chosen, rows), encoding="utf-8")
    if options.update_docs:
        write_section(PAGE, SECTION, text)
        (DOCS / CHART).write_text(chart(chosen, rows), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
