"""The rows of a simulation as tables for the terminal, one per scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...simulate.report import formatting
from ...simulate.report.summary import (
    COLUMNS,
    POLICY_COLUMNS,
    SCALER_COLUMNS,
    SummaryRow,
    best_p99,
    best_within_slo,
    pareto_front,
    shown_columns,
    success_title,
)
from ...simulate.run import IDEAL, is_peer

# Left out first in a narrow terminal.
OPTIONAL_COLUMNS = ("throughput", "mean", "p90", "p50", "p999", "low_slowdown", "hit_share", "ttft_p50")
OPTIONAL_SCALER_COLUMNS = ("p50", "peak_replicas", "starts", "p99", "mean_replicas")


def print_rows(console: Console, name: str, rows: Sequence[SummaryRow]) -> None:
    def make(columns: Sequence[str]) -> Table:
        table = plain_table(name, ["load", "policy"], [COLUMNS[column].title for column in columns])
        for load in dict.fromkeys(row.load for row in rows):
            group = [row for row in rows if row.load == load]
            winner, best_slo = best_p99(group), best_within_slo(group)
            if table.row_count:
                table.add_row()
            for row in group:
                marks = "*" * (row is winner) + "+" * (row is best_slo)
                style = "bold green" if row is winner else "dim italic" if row.policy == IDEAL else ""
                first = Text(formatting.load(load) if row is group[0] else "", style="bold")
                policy = Text(f"{formatting.policy_label(row.policy)} {marks}".rstrip(), style=style)
                table.add_row(first, policy, *_cells(row, columns, style))
        return table

    console.print(_fit_to_width(console, shown_columns(POLICY_COLUMNS, rows), OPTIONAL_COLUMNS, make))
    notes = ["* best p99 at this load"]
    notes += ["+ most within SLO and deadline"] if any(row.within_slo for row in rows) else []
    notes += ["(model): of another project's published rule"] if any(is_peer(row.policy) for row in rows) else []
    _print_notes(console, rows, [*notes, "slowdown ≤ 3: within 3× the request's own work"])


def print_scaled_rows(console: Console, name: str, rows: Sequence[SummaryRow]) -> None:
    success = success_title(rows)
    several = ["policy"] if len({row.policy for row in rows}) > 1 else []

    def make(columns: Sequence[str]) -> Table:
        titles = [success, *(COLUMNS[column].title for column in columns)]
        table = plain_table(name, ["load", *several, "scaler"], titles)
        for load in dict.fromkeys(row.load for row in rows):
            group = [row for row in rows if row.load == load]
            good = pareto_front(group)
            for row in group:
                style = "bold green" if row in good else ""
                first = Text(formatting.load_in_replicas(load) if row is group[0] else "", style="bold")
                names = [*(Text(row.policy) for _ in several), Text(row.scaler + " *" * (row in good), style=style)]
                share = Text(formatting.percent(row.success_share), style=style)
                table.add_row(first, *names, share, *_cells(row, columns, style))
        return table

    console.print(_fit_to_width(console, shown_columns(SCALER_COLUMNS, rows), OPTIONAL_SCALER_COLUMNS, make))
    notes = ["* Pareto-optimal: none has more for fewer replica-hours"]
    notes += [f"{success}: {COLUMNS['within_slo'].meaning}"] if any(row.within_slo for row in rows) else []
    _print_notes(console, rows, [*notes, "replica-hours: from the order to start, cold starts and drains included"])


def _print_notes(console: Console, rows: Sequence[SummaryRow], notes: list[str]) -> None:
    notes += ["± 95 % confidence"] if any(row.seeds > 1 for row in rows) else []
    notes += [] if any(row.loss_share for row in rows) else ["no request failed or was refused"]
    console.print(Text(" · ".join(notes), style="dim"), soft_wrap=not console.is_terminal)
    console.print()


def plain_table(title: str, names: Iterable[str], columns: Iterable[str]) -> Table:
    table = Table(title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False, header_style="dim")
    for name in names:
        table.add_column(name, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _fit_to_width(
    console: Console, columns: list[str], optional: Sequence[str], make: Callable[[Sequence[str]], Table]
) -> Table:
    """The table, without as many of the optional columns as there is no room for."""
    roomy = console.options.update(width=1000)
    for column in (*optional, ""):
        table = make(columns)
        if console.measure(table, options=roomy).maximum <= console.width:
            break
        columns = [name for name in columns if name != column]
    return table


def _cells(row: SummaryRow, columns: Sequence[str], style: str) -> list[Text]:
    cells = []
    for column in columns:
        value, half = row.cell(column)
        cells.append(Text(value, style=style))
        if half:
            cells[-1].append(f" {half}", style="dim")
    return cells
