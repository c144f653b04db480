"""Who keeps the promise for the least: scalers compared by what they keep and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

from .scaler_names import FIXED_SCALER, base_scaler
from .summary import SummaryRow


def mean_replica_hours(row: SummaryRow) -> float:
    assert row.replica_hours is not None
    return row.replica_hours.mean


def dominates(one: SummaryRow, other: SummaryRow) -> bool:
    """At least as good in both, and better in one."""
    as_good = one.success_share >= other.success_share and mean_replica_hours(one) <= mean_replica_hours(other)
    return as_good and (one.success_share > other.success_share or mean_replica_hours(one) < mean_replica_hours(other))


def is_scaler(row: SummaryRow) -> bool:
    """A fixed fleet is none: nobody knows the right number before."""
    return base_scaler(row.scaler) != FIXED_SCALER


def pareto_front(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """The scalers that none of the others beats, cheapest first."""
    able = [row for row in rows if is_scaler(row)]
    return sorted((row for row in able if not any(dominates(other, row) for other in able)), key=mean_replica_hours)
