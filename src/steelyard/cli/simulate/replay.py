"""`steelyard simulate --replay`: a decision log replayed, shown as a table with what follows from it in words."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ...simulate.replay.compare import DEFAULT_SEEDS, Comparison, check_policies, compare
from ...simulate.replay.findings import sentences
from ...simulate.replay.recording import read_recording
from ...simulate.replay.report import OUTPUT_FILES, files, rows
from .. import output
from ..output import check_directory, write_atomically
from .tables import plain_table


def show_replay(log: Path, model: str, policies: list[str], seeds: int | None, out: Path | None) -> None:
    check_policies(policies)
    if out is not None:
        check_directory(out, OUTPUT_FILES)
    comparison = compare(read_recording(log, model), policies, seeds=seeds or DEFAULT_SEEDS)
    print_comparison(output.stdout(), comparison)
    if out is not None:
        write_atomically(out, files(comparison))
        click.echo(f"wrote {', '.join(str(out / name) for name in OUTPUT_FILES)}")


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
