"""The rows of a simulation as a table for the terminal, one per scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...simulate.report import formatting
from ...simulate.report.formatting import percent, ratio, seconds
from ...simulate.report.summary import SummaryRow, best_p99, best_within_slo
from ...simulate.run import IDEAL

Cell = Callable[[SummaryRow], str | tuple[str, str]]

# Left out first where the terminal is narrow: all are in the files of --out.
OPTIONAL_COLUMNS = ("requests/s", "mean", "p90", "p50", "p99.9")


def print_rows(console: Console, name: str, rows: Sequence[SummaryRow]) -> None:
    console.print(fit_to_width(console, _columns(rows), OPTIONAL_COLUMNS, lambda columns: _table(name, rows, columns)))
    notes = ["* best p99 at this load"]
    notes += ["+ kept its promise (SLA, deadline) most often"] if any(row.within_slo for row in rows) else []
    notes += ["± 95 % confidence"] if any(row.seeds > 1 for row in rows) else []
    notes += ["prompt: within 3× the request's own work"]
    notes += [] if any(row.loss_share for row in rows) else ["no request failed or was refused"]
    console.print(Text(" · ".join(notes), style="dim"), soft_wrap=not console.is_terminal)
    console.print()


def fit_to_width(
    console: Console, columns: dict[str, Cell], expendable: Sequence[str], make: Callable[[dict[str, Cell]], Table]
) -> Table:
    """The table, without as many of the expendable columns as there is no room for."""
    table = make(columns)
    for column in expendable:
        if _width(console, table) <= console.width:
            break
        columns = {name: cell for name, cell in columns.items() if name != column}
        table = make(columns)
    return table


def _width(console: Console, table: Table) -> int:
    """What it takes to cut nothing off; asked of a console with room for everything."""
    return console.measure(table, options=console.options.update(width=1000)).maximum


def _columns(rows: Sequence[SummaryRow]) -> dict[str, Cell]:
    columns: dict[str, Cell] = {
        "p50": lambda row: seconds(row.p50)[0],
        "p90": lambda row: seconds(row.p90)[0],
        "p99": lambda row: seconds(row.p99),
        "p99.9": lambda row: seconds(row.p999),
        "mean": lambda row: seconds(row.mean)[0],
    }
    if any(row.p99_to_ideal for row in rows):
        columns["p99/ideal"] = lambda row: ratio(row.p99_to_ideal)
    if any(row.within_slo for row in rows):
        columns["kept"] = lambda row: percent(row.within_slo)
    columns["prompt"] = lambda row: percent(row.low_slowdown)
    if any(row.failed.mean for row in rows):
        columns["failed"] = lambda row: percent(row.failed)
    if any(row.refused.mean for row in rows):
        columns["refused"] = lambda row: percent(row.refused)
    columns["requests/s"] = lambda row: formatting.rate(row.throughput)
    return columns


def _table(name: str, rows: Sequence[SummaryRow], columns: dict[str, Cell]) -> Table:
    table = Table(title=Text(name, style="bold"), title_justify="left", box=None, pad_edge=False, header_style="dim")
    table.add_column("load", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    loads = list(dict.fromkeys(row.load for row in rows))
    for load in loads:
        group = [row for row in rows if row.load == load]
        winner, keeper = best_p99(group), best_within_slo(group)
        for place, row in enumerate(group):
            marks = ("*" if row is winner else "") + ("+" if row is keeper else "")
            style = "bold green" if row is winner else "dim italic" if row.policy == IDEAL else ""
            first = Text(formatting.load(load) if place == 0 else "", style="bold")
            policy = Text(f"{formatting.policy_label(row.policy)} {marks}".rstrip(), style=style)
            cells = [cell_text(get(row), style) for get in columns.values()]
            table.add_row(first, policy, *cells, end_section=place == len(group) - 1)
        if load != loads[-1]:
            table.add_row()
    return table


def cell_text(value: str | tuple[str, str], style: str) -> Text:
    if isinstance(value, str):
        return Text(value, style=style)
    first = Text(value[0], style=style)
    return first.append(f" {value[1]}", style="dim") if value[1] else first
