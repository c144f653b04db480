"""`steelyard simulate`: policies and scalers compared on a fleet and traffic of your own, or on built-in workloads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from ...core.errors import OptionError
from ...core.options import Concurrency
from ...simulate.engine.result import RunResult
from ...simulate.llm.fit_report import fit_lines
from ...simulate.peers import PEERS
from ...simulate.replay.compare import DEFAULT_SEEDS, Comparison, check_policies, compare
from ...simulate.replay.findings import sentences
from ...simulate.replay.recording import read_recording
from ...simulate.replay.report import REPLAY_FILES, files, rows
from ...simulate.report import formatting
from ...simulate.report.findings import warnings
from ...simulate.report.summary import rows_csv, runs_csv, scenarios_with_slo, summarise
from ...simulate.run import IDEAL, Task, check_scenario, has_ideal, run_all, tasks
from ...simulate.scenario.catalog import CATALOG, TITLES, find_scenarios, scenario_for_trace
from ...simulate.scenario.file import load_scenarios, to_yaml
from ...simulate.scenario.schema import Scenario
from .. import output
from ..command_line import parse_concurrency
from ..output import check_directory, write_atomically
from .tables import plain_table, print_rows, print_scaled_rows

OUTPUT_FILES = ["results.csv", "runs.csv", "report.html"]
MIN_PARALLEL_REQUESTS = 20_000  # fewer are done before other processes have started

_BUILT_IN_HELP = "\n".join(f"  {name:<4} {TITLES[name]}" for name in CATALOG)
HELP = f"""Compare policies and scalers on simulated replicas: the real balancer, virtual time.

SCENARIO is a YAML file or one of the built-in workloads:

\b
{_BUILT_IN_HELP}

\b
Examples:
  steelyard simulate W3 --requests 5000 --seeds 3
  steelyard simulate W2 --policy least_connections,least_work@1 --load 0.8,0.9
  steelyard simulate --trace requests.csv --out results
  steelyard simulate W9 --show > mine.yaml         # a start for your own
  steelyard simulate mine.yaml --policy mypackage.routing:MyPolicy,least_work
  steelyard simulate A1 --scaler work,kpa,hpa@target=0.6,fixed@5
  steelyard simulate --replay decisions.jsonl --policy least_work,round_robin

A policy may carry its concurrency, the requests a replica takes at once while the rest wait in the balancer: name@1,
name@auto, name@unlimited. `steelyard policies` lists them. "ideal" is the reference, a central queue that knows all.
Where the fleet has text-generating engines (W6, W7), {", ".join(PEERS)} are models of how others choose.
In A1 to A6 a scaler decides how many replicas there are: work, kpa, hpa, each with options as in kpa@target=0.5, or
fixed@N, which keeps N.

--replay asks what another policy would have done with what really happened: it takes a decision log
(`decision_log` in the configuration, with sample_rate: 1), replays the policy that ran, says how far that is from
what was observed, and then replays yours: docs/replay.md.

--fit finds the coefficients of a text-generating engine (`fleet[].engine`) in such a log, and their error.
"""


def _items(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    if value is None:
        return None
    items = [item.strip() for item in value.split(",")]
    if not all(items):
        raise click.BadParameter(f"{value!r}: write one or more, with commas between")
    return list(dict.fromkeys(items))


def _loads(context: click.Context, parameter: click.Parameter, value: str | None) -> list[float] | None:
    try:
        items = _items(context, parameter, value)
        return None if items is None else [float(item) for item in items]
    except ValueError:
        raise click.BadParameter(f"{value!r}: write shares of the capacity, such as 0.7,0.9") from None


@click.command(help=HELP, short_help="Compare policies on simulated replicas and traffic.")
@click.argument("scenario", required=False)
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Recorded traffic instead (CSV, JSONL).")
@click.option("--replay", type=click.Path(path_type=Path), metavar="LOG", help="A gateway's decision log instead.")
@click.option("--fit", type=click.Path(path_type=Path), metavar="LOG", help="Fit the engine of a decision log instead.")
@click.option("--model", metavar="NAME", help="With --replay and --fit: the model, where the log has several.")
@click.option("--policy", callback=_items, metavar="A,B,…", help="Compare these.")
@click.option("--scaler", callback=_items, metavar="A,B,…", help="Compare these, where the fleet's size changes.")
@click.option("--load", callback=_loads, metavar="0.7,0.9", help="Shares of the fleet's capacity; 0: as recorded.")
@click.option("--requests", type=click.IntRange(min=1), metavar="N", help="Requests in each run.")
@click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="Runs of each policy, scaler and load.")
@click.option(
    "--concurrency",
    callback=parse_concurrency,
    metavar="N|auto|unlimited",
    help="For policies without an @ of their own.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Write {', '.join(OUTPUT_FILES)} there; with --replay, replay.csv and replay.html.",
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes; by default one a core.")
@click.option("--no-ideal", is_flag=True, help="Leave the reference out.")
@click.option("--show", is_flag=True, help="Print the scenario as YAML and run nothing.")
def simulate(
    scenario: str | None,
    trace: Path | None,
    replay: Path | None,
    fit: Path | None,
    model: str | None,
    policy: list[str] | None,
    scaler: list[str] | None,
    load: list[float] | None,
    requests: int | None,
    seeds: int | None,
    concurrency: Concurrency | None,
    out: Path | None,
    jobs: int | None,
    no_ideal: bool,
    show: bool,
) -> None:
    of_scenarios = {"SCENARIO": scenario, "--trace": trace, "--scaler": scaler, "--load": load, "--requests": requests}
    of_scenarios |= {"--concurrency": concurrency, "--jobs": jobs, "--no-ideal": no_ideal, "--show": show}
    if replay is not None:
        _refuse(of_scenarios | {"--fit": fit}, "--replay goes with --policy, --model, --seeds and --out only")
        show_replay(replay, model or "", policy or [], seeds, out)
        return
    if fit is not None:
        _refuse(of_scenarios | {"--policy": policy, "--seeds": seeds, "--out": out}, "--fit goes with --model only")
        click.echo("\n".join(fit_lines(fit, model or "")))
        return
    if model is not None:
        raise click.UsageError("--model goes with --replay and --fit only")
    changes = {"policies": policy, "loads": load, "requests": requests, "seeds": seeds}
    scenarios = [_with_overrides(one, changes, concurrency, scaler) for one in _find(scenario, trace)]
    if show:
        click.echo("---\n".join(to_yaml(one) for one in scenarios), nl=False)
        return
    scenarios = [_with_reference(one, wanted=not no_ideal) for one in scenarios]
    for one in scenarios:
        check_scenario(one)
    if out is not None:
        check_directory(out, OUTPUT_FILES)
    results = _run([task for one in scenarios for task in tasks(one)], jobs)
    _print(scenarios, results)
    if out is not None:
        _write(out, _files(scenarios, results))


def _refuse(options: dict[str, Any], rule: str) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise click.UsageError(f"{rule}, not with {given[0]}")


def _write(out: Path, files: dict[str, str]) -> None:
    write_atomically(out, files)
    click.echo(f"wrote {', '.join(str(out / name) for name in files)}")


def _find(scenario: str | None, trace: Path | None) -> list[Scenario]:
    if (scenario is None) == (trace is None):
        raise click.UsageError(
            "name one scenario (a YAML file, W1 to W11, A1 to A6), --trace FILE or --replay LOG; see --help"
        )
    if trace is not None:
        return [scenario_for_trace(trace)]
    assert scenario is not None
    if scenario.upper() in CATALOG:
        return find_scenarios(scenario)
    if not Path(scenario).exists() and not Path(scenario).suffix:
        return find_scenarios(scenario)  # which says what there is
    return load_scenarios(scenario)


def _with_overrides(
    scenario: Scenario, changes: dict[str, Any], concurrency: Concurrency | None, scalers: list[str] | None
) -> Scenario:
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items() if value}
    if concurrency is not None:
        given["balancing"] = msgspec.structs.replace(scenario.balancing, concurrency=concurrency)
    if scalers is not None:
        if scenario.autoscale is None:
            raise OptionError(f"{scenario.name}: --scaler needs a scenario with `autoscale`, such as A1")
        given["autoscale"] = msgspec.structs.replace(scenario.autoscale, scalers=tuple(scalers))
    try:
        return msgspec.structs.replace(scenario, **given)
    except ValueError as problem:
        raise OptionError(f"{scenario.name}: {problem}") from None


def _with_reference(scenario: Scenario, *, wanted: bool) -> Scenario:
    policies = [policy for policy in scenario.policies if policy != IDEAL]
    if wanted and has_ideal(scenario):
        policies.insert(0, IDEAL)
    if not policies:
        raise OptionError(f"{scenario.name}: no policy is left to compare")
    return msgspec.structs.replace(scenario, policies=tuple(policies))


def _run(todo: list[Task], jobs: int | None) -> list[RunResult]:
    few = sum(task.scenario.requests for task in todo) < MIN_PARALLEL_REQUESTS
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with _progress(len(todo)) as done:
        return run_all(todo, processes=min(jobs or (1 if few else cores), len(todo)), done=done)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[RunResult], None]]:
    """A bar on stderr, if that is a terminal."""
    console = output.stderr()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("simulating", total=total)

        def done(result: RunResult) -> None:
            who = f"{result.policy}, {result.scaler}" if result.scaler else result.policy
            at = f"{who}, load {formatting.load(result.load)}"
            progress.update(bar, advance=1, description=at)

        yield done


def _print(scenarios: Sequence[Scenario], results: Sequence[RunResult]) -> None:
    rows = summarise(results, scenarios_with_slo(scenarios))
    console = output.stdout()
    for one in scenarios:
        show = print_rows if one.autoscale is None else print_scaled_rows
        show(console, one.name, [row for row in rows if row.scenario == one.name])
        for warning in warnings(one, [result for result in results if result.scenario == one.name]):
            click.echo(f"note: {one.name}: {warning}", err=True)


def _files(scenarios: Sequence[Scenario], results: Sequence[RunResult]) -> dict[str, str]:
    from ...simulate.report.page import render

    rows = summarise(results, scenarios_with_slo(scenarios))
    return {
        "results.csv": rows_csv(rows),
        "runs.csv": runs_csv(results),
        "report.html": render(scenarios, results),
    }


def show_replay(log: Path, model: str, policies: list[str], seeds: int | None, out: Path | None) -> None:
    check_policies(policies)
    if out is not None:
        check_directory(out, REPLAY_FILES)
    comparison = compare(read_recording(log, model), policies, seeds=seeds or DEFAULT_SEEDS)
    print_comparison(output.stdout(), comparison)
    if out is not None:
        _write(out, files(comparison))


def print_comparison(console: Console, comparison: Comparison) -> None:
    recording = comparison.recording
    title = f"{recording.model}: {len(recording.requests):,} requests in {recording.seconds:,.0f} s"
    header, *lines = rows(comparison)
    table = plain_table(title, header[:1], header[1:])
    for line in lines:
        table.add_row(*(Text(cell, style="dim" if line is lines[0] else "") for cell in line))
    console.print(table)
    for sentence in sentences(comparison):
        console.print(Text(f"- {sentence}"), soft_wrap=not console.is_terminal)
