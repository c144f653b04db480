"""The rows of a simulation in which the fleet's size changes: what was kept, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...simulate.report import formatting
from ...simulate.report.formatting import number, percent, seconds
from ...simulate.report.summary import SummaryRow, pareto_front
from .result_table import Cell, cell_text, fit_to_width

# Left out first where the terminal is narrow: all are in the files of --out.
OPTIONAL_COLUMNS = ("p50", "most", "starts", "p99", "mean replicas")


def print_scaled_rows(console: Console, name: str, rows: Sequence[SummaryRow]) -> None:
    console.print(fit_to_width(console, _columns(rows), OPTIONAL_COLUMNS, lambda columns: _table(name, rows, columns)))
    kept = "answered within the SLA and the deadline" if any(row.within_slo for row in rows) else "answered"
    notes = ["* none keeps more for fewer replica-hours", f"kept: {kept}"]
    notes += ["replica-hours: from the order to start, cold starts and drains included"]
    notes += ["± 95 % confidence"] if any(row.seeds > 1 for row in rows) else []
    notes += [] if any(row.loss_share for row in rows) else ["no request failed or was refused"]
    console.print(Text(" · ".join(notes), style="dim"), soft_wrap=not console.is_terminal)
    console.print()


def _columns(rows: Sequence[SummaryRow]) -> dict[str, Cell]:
    columns: dict[str, Cell] = {
        "kept": lambda row: percent(row.success_share),
        "replica-hours": lambda row: number(row.replica_hours),
        "mean replicas": lambda row: number(row.mean_replicas)[0],
        "most": lambda row: number(row.peak_replicas)[0],
        "starts": lambda row: number(row.starts)[0],
        "p50": lambda row: seconds(row.p50)[0],
        "p99": lambda row: seconds(row.p99),
    }
    if any(row.failed.mean for row in rows):
        columns["failed"] = lambda row: percent(row.failed)
    if any(row.refused.mean for row in rows):
        columns["refused"] = lambda row: percent(row.refused)
    return columns


def _table(name: str, rows: Sequence[SummaryRow], columns: dict[str, Cell]) -> Table:
    table = Table(title=Text(name, style="bold"), title_justify="left", box=None, pad_edge=False, header_style="dim")
    several = len({row.policy for row in rows}) > 1
    for heading in ("load", *(["policy"] if several else []), "scaler"):
        table.add_column(heading, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for load in dict.fromkeys(row.load for row in rows):
        group = [row for row in rows if row.load == load]
        good = pareto_front(group)
        for place, row in enumerate(group):
            style = "bold green" if row in good else ""
            first = Text(formatting.load_in_replicas(load) if place == 0 else "", style="bold")
            names = [*([Text(row.policy)] if several else []), Text(row.scaler + " *" * (row in good), style=style)]
            table.add_row(first, *names, *(cell_text(get(row), style) for get in columns.values()))
    return table
