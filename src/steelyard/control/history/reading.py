"""What a history says, read from its file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from math import inf

from .database import COLUMNS, slice_from_row
from .slices import STEP_SECONDS, Slice, add_counts


def read_slices(database: sqlite3.Connection, since: float, until: float = inf) -> Iterator[Slice]:
    """Those that begin in that time, oldest first."""
    clauses, bounds = "start >= ?", [since]
    if until < inf:
        clauses, bounds = f"{clauses} AND start < ?", [since, until]
    rows = database.execute(
        f"SELECT {COLUMNS} FROM slices WHERE step IN {STEP_SECONDS} AND {clauses} ORDER BY start, model, tenant, step",
        bounds,
    )
    return map(slice_from_row, rows)


def sum_counts(slices: Iterable[Slice]) -> dict[tuple[str, str], dict[str, int]]:
    """Counts by model and tenant."""
    total: dict[tuple[str, str], dict[str, int]] = {}
    for part in slices:
        key = (part.model, part.tenant)
        total[key] = add_counts(total.get(key, {}), part.counts)
    return total
