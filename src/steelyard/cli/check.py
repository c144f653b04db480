"""`steelyard check`: is a configuration valid, and is it wise?"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..advice import Advice, Note, advise, notes
from ..config import Config, check_tree, schema, tree_of
from ..config.rules.runtime import max_started
from ..documents import Diagnostic, DocumentError, PartialDocument, YamlDocument, format_key, printable
from . import output

EXIT_VALID, EXIT_WARNINGS, EXIT_INVALID = 0, 1, 2
T = TypeVar("T", Advice, Note)

HELP = """Check a configuration, and warn of the classic mistakes.

Says all that is wrong with CONFIG.yaml, each with its line and key; then what is valid but unwise, with what to do
about it. The files it names (certificates, keys, programs) are looked at too. Nothing is started and nothing is sent.

\b
Examples:
  steelyard check gateway.yaml
  steelyard check gateway.yaml --strict              # in CI: warnings fail as well
  steelyard check gateway.yaml --format json         # for programs
  steelyard check --schema > steelyard.schema.json   # for editors

Exit code 0: valid. 1: valid, but there are warnings and --strict. 2: not valid.
"""


@click.command(help=HELP, short_help="Check a configuration and warn of the classic mistakes.")
@click.argument("config", required=False, type=click.Path(path_type=Path), metavar="CONFIG.yaml")
@click.option("--strict", is_flag=True, help="Fail on warnings, with exit code 1.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="For people or programs.")
@click.option("--schema", "wants_schema", is_flag=True, help="Print the JSON schema of configurations instead.")
def check(config: Path | None, strict: bool, form: str, wants_schema: bool) -> int:
    if wants_schema == (config is not None):
        raise click.UsageError("name one CONFIG.yaml, or ask for the --schema; see --help")
    if config is None:
        click.echo(_json(schema()))
        return EXIT_VALID
    report = ConfigReport(config)
    if form == "json":
        click.echo(_json(report.as_dict()))
    else:
        report.show(output.stdout())
    return EXIT_INVALID if report.errors else EXIT_WARNINGS if strict and report.warnings else EXIT_VALID


class ConfigReport:
    """In the order of the lines. A configuration with errors gets advice about its other parts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: Config | None = None
        self.warnings: list[tuple[int, Advice]] = []
        self.notes: list[tuple[int, Note]] = []
        try:
            tree = tree_of(path)
        except DocumentError as problem:  # not even YAML
            self.errors = problem.diagnostics or (Diagnostic(str(path), 0, "", str(problem).removeprefix(f"{path}: ")),)
            return
        self.config, faults, left = check_tree(tree, path.absolute().parent)
        self.errors = DocumentError.of(faults).diagnostics
        if self.config is not None:
            self.warnings = _with_lines(advise(self.config), tree, left)
            self.notes = _with_lines(notes(self.config), tree, left)

    def as_dict(self) -> dict[str, Any]:
        errors = [{"line": fault.line or None, "key": fault.key, "what": fault.what} for fault in self.errors]
        warnings = [
            {"code": item.code, "line": line, "key": format_key(item.key), "what": item.what, "do": item.do}
            for line, item in self.warnings
        ]
        notes = [{"line": line, "key": format_key(item.key), "what": item.what} for line, item in self.notes]
        valid = not self.errors
        return {"file": str(self.path), "valid": valid, "errors": errors, "warnings": warnings, "notes": notes}

    def show(self, console: Console) -> None:
        for fault in self.errors:
            click.echo(f"error: {fault}", err=True)
        if console.is_terminal:
            self._show_table(console)
        else:
            self._show_lines()

    def _show_lines(self) -> None:
        """As compilers do, for editors and grep."""
        for line, item in self.warnings:
            what = f"{item.what} {item.do} [{item.code}]"
            click.echo(f"{self.path}:{line}: warning: {format_key(item.key)}: {what}")
        for line, note in self.notes:
            click.echo(f"{self.path}:{line}: note: {format_key(note.key)}: {note.what}")
        if not self.errors:
            click.echo(f"{self.path}: {self._summary()}")

    def _show_table(self, console: Console) -> None:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 1, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for line, item in self.warnings:
            table.add_row(Text("warning", style="bold yellow"), _rendered(item, f"{self.path}:{line}"))
        for line, note in self.notes:
            table.add_row(Text("note", style="bold cyan"), _rendered(note, f"{self.path}:{line}"))
        if table.row_count:
            console.print(table)
        if not self.errors:
            console.print(Text.assemble(("✓ ", "bold green"), f"{self.path}: {self._summary()}"))

    def _summary(self) -> str:
        assert self.config is not None
        replicas = sum(len(model.replicas) for model in self.config.models.values())
        most = sum(map(max_started, self.config.models.values()))
        started = f" and {'any number' if most == inf else f'up to {most:.0f}'} to start" if most else ""
        there = f"valid: {_count(len(self.config.models), 'model')}, {_count(replicas, 'replica')}{started}"
        return f"{there}; {_count(len(self.warnings), 'warning')}, {_count(len(self.notes), 'note')}"


def _with_lines(found: Iterable[T], tree: YamlDocument, left: PartialDocument) -> list[tuple[int, T]]:
    """With their lines, without values of variables and keys with errors."""
    items = [item._replace(key=left.original_key(item.key)) for item in found]
    shown = [(tree.line(item.key), _masked(item, tree)) for item in items if not left.is_affected(item.key)]
    return sorted(shown, key=lambda pair: pair[0])


def _masked(item: T, tree: YamlDocument) -> T:
    def safe(text: str) -> str:
        return printable(tree.redacted(text))

    key = tuple(safe(step) if isinstance(step, str) else step for step in item.key)
    if isinstance(item, Advice):
        return item._replace(key=key, what=safe(item.what), do=safe(item.do))
    return item._replace(key=key, what=safe(item.what))


def _rendered(item: Advice | Note, where: str) -> Text:
    text = Text.assemble((format_key(item.key), "bold"), (f"  {where}", "dim"))
    if isinstance(item, Note):
        return text.append(f"\n{item.what}")
    return text.append(f"  {item.code}", style="dim").append(f"\n{item.what}\n→ {item.do}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
