"""Who keeps the promise for the least: scalers compared by what they keep and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

from .scaler_names import FIXED, series
from .summary import Row


def cost(row: Row) -> float:
    assert row.hours is not None
    return row.hours.mean


def beats(one: Row, other: Row) -> bool:
    """At least as good in both, and better in one."""
    as_good = one.good >= other.good and cost(one) <= cost(other)
    return as_good and (one.good > other.good or cost(one) < cost(other))


def is_scaler(row: Row) -> bool:
    """A fixed fleet is none: nobody knows the right number before."""
    return series(row.scaler) != FIXED


def undominated(rows: Sequence[Row]) -> list[Row]:
    """The scalers that none of the others beats, cheapest first."""
    able = [row for row in rows if is_scaler(row)]
    return sorted((row for row in able if not any(beats(other, row) for other in able)), key=cost)
