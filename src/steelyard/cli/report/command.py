"""`steelyard report`: SLOs over a period."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from io import StringIO
from pathlib import Path

import click
from rich.console import Console

from ...config import Config, load_config
from ...control.history.database import HistoryError, default_path, open_readonly, read_slices
from ...control.history.periods import parse_time
from ...control.history.slices import DAY_SECONDS, Slice
from ...control.history.summary import Summary, summarize
from ...core.errors import OptionError
from ...system import state_directory
from .. import output
from .export import as_csv, as_json
from .page import report_page
from .text import print_report, safe_name, safe_text

HELP = """SLO attainment over a period.

Reads the history that a gateway keeps, whether it runs or not, over all its restarts. For each model and
tenant: how many requests were met, late, failed or refused and where the fault was, whether each SLO was met, how much
of the error budget is used, latencies, and gaps in the history. All times are UTC.

\b
Examples:
  steelyard report                                       # the last 24 hours
  steelyard report --since 7d --model detector
  steelyard report --since 2026-11-01 --until 2026-12-01 --format html --out november.html
  steelyard report --config gateway.yaml --format csv > report.csv

A missed SLO is no error. Exit code 2: there is no history, or an option is wrong. More: docs/report.md.
"""


@click.command(help=HELP, short_help="SLO attainment over a period.")
@click.option(
    "--since",
    default="24h",
    show_default=True,
    metavar="WHEN",
    help="So long ago (24h, 7d), or a time (2026-11-01T08:00).",
)
@click.option("--until", default="", metavar="WHEN", help="In the same way; by default now.")
@click.option("--model", metavar="NAME", help="Only this one.")
@click.option("--tenant", metavar="NAME", help="Only this one; an empty name: requests that named none.")
@click.option("--config", type=click.Path(path_type=Path), metavar="CONFIG.yaml", help="Of which gateway.")
@click.option("--history", type=click.Path(path_type=Path), metavar="FILE", help="Or the SQLite file itself.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "html", "csv", "json"]),
    default="terminal",
    show_default=True,
    help="For people or programs.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="File to write to, instead of standard output."
)
def report(
    since: str,
    until: str,
    model: str | None,
    tenant: str | None,
    config: Path | None,
    history: Path | None,
    form: str,
    out: Path | None,
) -> None:
    now = time.time()
    begin, end = parse_time("--since", since, now), parse_time("--until", until, now) if until else now
    if begin >= end:
        raise OptionError("the period ends before it begins: see --since and --until")
    configured = load_config(config) if config is not None and history is None else None
    path = _find(configured, config, history)
    slices = _read(path, begin, end)
    if configured is not None:
        slices = _of_configuration(slices, configured, path)
    _check(slices, model, tenant)
    _write(summarize(slices, begin, end, now, model, tenant), form, out, now)


def _of_configuration(slices: list[Slice], config: Config, path: Path) -> list[Slice]:
    """Other gateways at this address may have counted in its history."""
    others = sorted({part.model for part in slices} - config.models.keys())
    if others:
        names = ", ".join(map(safe_name, others[:5])) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        click.echo(f"left out, as the configuration has no such model: {names}; --history {path} shows all", err=True)
    return [part for part in slices if part.model in config.models]


def _find(config: Config | None, file: Path | None, history: Path | None) -> Path:
    if history is not None:
        if file is not None:
            raise OptionError("give --config or --history, not both")
        return history
    if config is not None and not config.history.enabled:
        raise OptionError(f"--config {file}: it says that no history is kept (history.enabled)")
    if config is not None:
        return Path(config.history.path or default_path(config.name or str(config.listen_addresses[0])))
    folder = state_directory()
    files = sorted(folder.glob("*.sqlite")) if folder.is_dir() else []
    if len(files) == 1:
        return files[0]
    if not files:
        raise HistoryError(f"there is no history in {folder}: run a gateway first, or name its --config or --history")
    names = ", ".join(file.name for file in files)
    raise OptionError(f"there are several histories in {folder} ({names}): choose one with --history {files[0]}")


def _read(path: Path, since: float, until: float) -> list[Slice]:
    database = open_readonly(path)
    try:
        return list(read_slices(database, since - DAY_SECONDS, until))  # a day may reach into the period
    except sqlite3.Error as problem:
        raise HistoryError(f"history {path}: {problem}") from problem
    finally:
        database.close()


def _check(slices: list[Slice], model: str | None, tenant: str | None) -> None:
    """A misspelled name is not a model without requests."""
    for option, name, known in (
        ("--model", model, {part.model for part in slices}),
        ("--tenant", tenant, {part.tenant for part in slices}),
    ):
        if name is not None and name not in known:
            there = ", ".join(repr(one) for one in sorted(known)[:20]) or "none"
            raise OptionError(f"{option} {name!r}: nothing was counted of it in this period; there are {there}")


def _write(summary: Summary, form: str, out: Path | None, now: float) -> None:
    if form == "terminal" and out is None:
        print_report(output.stdout(), summary)
        return
    text = _text(summary, form, now)
    if out is None:
        sys.stdout.write(safe_text(text) if output.is_terminal() else text)
        return
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8", newline="\n")
        os.replace(aside, out)  # a reader never finds half a report
    except OSError as problem:
        aside.unlink(missing_ok=True)
        raise OptionError(f"--out {out}: {problem.strerror or problem}") from problem
    click.echo(f"wrote {out}")


def _text(summary: Summary, form: str, now: float) -> str:
    match form:
        case "csv":
            return as_csv(summary)
        case "json":
            return as_json(summary)
        case "html":
            return report_page(summary, now)
    console = Console(width=output.PIPED_COLUMNS, file=StringIO(), record=True, highlight=False, emoji=False)
    print_report(console, summary)
    return console.export_text()
