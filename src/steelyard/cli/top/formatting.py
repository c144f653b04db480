"""Numbers and tables of `steelyard top`: short, and no wider than there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from rich.text import Text

from ...units import format_size

SPARKLINE_BARS = "▁▂▃▄▅▆▇█"
DASH = "–"
MAX_NAME_COLUMNS = 48
T = TypeVar("T")


class Column(NamedTuple, Generic[T]):
    title: str
    width: int
    rank: int  # the largest goes first where there is no room
    cell: Callable[[T], str | Text]
    left: bool = False  # aligned


def clean(text: str) -> str:
    """Nothing in a name moves the cursor."""
    return "".join(c if c.isprintable() else "·" for c in text)


def seconds(value: float | None) -> str:
    if value is None or value <= 0.0:
        return DASH
    if value < 0.9995:
        return f"{value * 1000:.3g} ms" if value >= 0.001 else f"{value * 1000:.1g} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"


def age_text(value: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if value >= size:
            return f"{value / size:.0f}{unit}"
    return f"{max(0.0, value):.0f}s"


def number(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:.0f}k"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def size(count: int | None) -> str:
    return DASH if count is None else format_size(count)


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The latest on the right; a gap where a value is None."""
    shown = list(values)[-width:] if width > 0 else []
    top = max((value for value in shown if value is not None), default=0.0)
    scale = (len(SPARKLINE_BARS) - 1) / top if top > 0.0 else 0.0
    return "".join(" " if v is None else SPARKLINE_BARS[round(v * scale)] for v in shown).rjust(max(0, width))


def bar(share: float, width: int) -> str:
    full = round(min(1.0, max(0.0, share)) * width)
    return "█" * full + "░" * (width - full)


def fit_columns(columns: Sequence[Column[T]], width: int) -> list[Column[T]]:
    fitting = list(columns)
    while len(fitting) > 1 and sum(c.width + 1 for c in fitting) - 1 > width:
        fitting.remove(max(fitting, key=lambda c: c.rank))
    return fitting


def join_names(before: str, name: str, width: int, shared: int = 0) -> str:
    """`before/name`; `before` is cut, first the `shared` characters it begins with."""
    room = width - len(name) - 1
    if len(before) > room and shared > 1:
        before = f"…{before[shared:]}"
    if len(before) > room:
        before = f"{before[: max(2, room - 1)]}…"
    return f"{before}/{name}"


def table(columns: Sequence[Column[T]], rows: Iterable[T], width: int) -> list[Text]:
    fitting = fit_columns(columns, width)
    filled = [[Text(c) if isinstance(c, str) else c for c in (column.cell(row) for column in fitting)] for row in rows]
    spare = width - sum(c.width + 1 for c in fitting) + 1
    longest = min(MAX_NAME_COLUMNS, max((cells[0].cell_len for cells in filled), default=0))
    # a long name gets the room that nothing else needs
    fitting[0] = fitting[0]._replace(width=min(max(longest, fitting[0].width), fitting[0].width + max(0, spare)))
    titles = [Text(c.title, style="dim") for c in fitting]
    return [_line(cells, fitting) for cells in (titles, *filled)]


def _line(cells: list[Text], columns: Sequence[Column[T]]) -> Text:
    line = Text()
    for cell, column in zip(cells, columns, strict=True):
        cell.truncate(column.width, overflow="ellipsis")
        gap = " " * (column.width - cell.cell_len)
        line.append_text(cell if column.left else Text(gap))
        line.append_text(Text(gap) if column.left else cell)
        line.append(" ")
    return line


def truncate(line: Text, width: int) -> Text:
    line.rstrip()
    line.truncate(width, overflow="ellipsis")
    return line
