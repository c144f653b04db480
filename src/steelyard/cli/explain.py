"""`steelyard explain`: why a request went where it went, from the decision log."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config import load_config
from ..core.errors import OptionError
from ..documents import printable
from ..link.decision_log.explain import deciding_choice, explain_line, format_seconds, score_meaning, summary
from ..link.decision_log.lines import DecisionLine, LoggedChoice
from ..link.decision_log.search import SearchResult, search
from . import output

HELP = """Why did this request go where it went? In words, from the decision log.

REQUEST_ID is the answer's header x-request-id; a unique prefix is enough. The gateway writes a decision log if its
configuration has `decision_log:`. The file is read from its end, then the rotated FILE.1.

\b
Examples:
  steelyard explain 0192f7c1 --config gateway.yaml
  steelyard explain 0192f7c1 --log decisions.jsonl
  steelyard explain 0192f7c1 --log decisions.jsonl --json   # the lines themselves

All requests with that id are shown, the newest last. Exit code 2: there is none. More: docs/explain.md.
"""


@click.command(help=HELP, short_help="Why a request went where it went.")
@click.argument("request_id")
@click.option("--log", type=click.Path(path_type=Path), metavar="FILE", help="The decision log, with FILE.1.")
@click.option("--config", type=click.Path(path_type=Path), metavar="CONFIG.yaml", help="Or the file that names it.")
@click.option("--json", "as_json", is_flag=True, help="The lines as they are, for programs.")
def explain(request_id: str, log: Path | None, config: Path | None, as_json: bool) -> None:
    if not request_id:
        raise click.UsageError("REQUEST_ID is empty; answers carry it in their header x-request-id")
    path = _log_of(log, config)
    files = [file for file in (path, Path(f"{path}.1")) if file.is_file()]
    if not files:
        raise OptionError(f"{path}: there is no such file; has the gateway been started with `decision_log`?")
    try:
        found = search(files, request_id)
    except OSError as problem:
        raise OptionError(f"{path}: {problem.strerror or problem}") from problem
    if not found.lines:
        raise OptionError(_not_found(request_id, path, found))
    if as_json:
        for line in found.lines:
            click.echo(_json(line))
        return
    console = output.stdout(piped=120)
    for number, line in enumerate(found.lines):
        if number:
            console.print()
        _show(line, console)


def _log_of(log: Path | None, config: Path | None) -> Path:
    if log is not None and config is not None:
        raise click.UsageError("give --config or --log, not both")
    if log is None and config is None:
        raise click.UsageError("say which log, with --log FILE or with --config CONFIG.yaml")
    if config is None:
        assert log is not None
        return log
    settings = load_config(config).decision_log
    if settings is None:
        raise OptionError(f"{config}: it has no decision log; add `decision_log: {{path: decisions.jsonl}}` to it")
    return Path(settings.path)


def _not_found(wanted: str, path: Path, found: SearchResult) -> str:
    if found.ids:
        return f"several ids begin with {printable(wanted)}: {', '.join(map(printable, found.ids))}; write more of it"
    said = f"{path}: no request {printable(wanted)} there."
    if found.sample_rate is not None and found.sample_rate < 1.0:
        said += f" Only {found.sample_rate:.3g} of all requests are written down, and it may not have been one of those"
        said += " (`decision_log.sample_rate: 1` writes all)."
    return f"{said} Answers carry their id in the header x-request-id."


def _show(line: DecisionLine, console: Console) -> None:
    console.print(Text(printable(summary(line)), style="bold"))
    console.print()
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for about, said in explain_line(line):
        facts.add_row(about, Text(printable(said)))
    console.print(facts)
    look = deciding_choice(line)
    if look is not None and look.candidates:
        console.print()
        console.print(_candidates(look))
        if any(c.score is not None for c in look.candidates):
            console.print(Text(f"score: {printable(score_meaning(line))}", style="dim"))


def _candidates(look: LoggedChoice) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("candidate", overflow="fold")
    for column in ("score", "in flight", "work", "slowness", "expected", "weight", "failures"):
        table.add_column(column, justify="right")
    for one in sorted(look.candidates, key=lambda c: (c.score is None, c.score or 0.0)):
        chosen = one.id == look.chosen
        table.add_row(
            Text(f"{'→ ' if chosen else '  '}{printable(one.id)}", style="bold" if chosen else ""),
            "–" if one.score is None else f"{one.score:.4g}",
            str(one.in_flight),
            format_seconds(one.work),
            f"{one.slowness:.3g}",
            format_seconds(one.expected),
            f"{one.weight:.3g}",
            str(one.failures),
        )
    return table


def _json(line: DecisionLine) -> str:
    """ASCII: an id is a client's, and may hold terminal codes."""
    return json.dumps(msgspec.to_builtins(line), ensure_ascii=True).replace("\x7f", "\\u007f")
