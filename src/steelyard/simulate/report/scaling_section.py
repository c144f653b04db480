"""The part of a report about a scenario in which a scaler decides how many replicas there are."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.result import RunResult
from ..scenario.schema import Scenario
from . import formatting
from .html import badge, card, definitions, escape, figure, group_row, row, table, with_half_width
from .scaling_charts import OWN_SCALER, replicas_over_time, scaler_styles, slo_by_cost
from .summary import (
    COLUMNS,
    SCALER_COLUMNS,
    SummaryRow,
    dominates,
    is_scaler,
    mean_replica_hours,
    meanings_of,
    pareto_front,
    shown_columns,
    success_title,
)

COST_CAPTION = (
    "Up and to the left is better: more requests within SLO, for fewer replica-hours. A large dot is a "
    "scaler with its defaults, a small one has options of its own; the line joins those of one scaler."
)
TIMELINE_CAPTION = (
    "One panel a scaler. The coloured line is the replicas that are ready, the pale area above it those being started, "
    "the thin line the work that comes, in replicas' worth. Marks at the bottom: more than 1 % of the requests that "
    "ended then were late, refused or failed. First seed."
)
PARETO_MEANING = "no other scaler has at least as many requests within SLO for no more, and is better in one of the two"


def scaling_section(scenario: Scenario, runs: Sequence[RunResult], rows: Sequence[SummaryRow]) -> list[str]:
    """The finding, then cards."""
    load = max(one.load for one in rows)
    at = [one for one in rows if one.load == load]
    look = scaler_styles([one.scaler for one in rows])
    policy = at[0].policy
    shown = [r for r in runs if r.load == load and r.seed == runs[0].seed and r.policy == policy and r.fleet]
    cost = slo_by_cost([one for one in at if one.policy == policy], look).svg("Requests within SLO against cost")
    over_time = replicas_over_time(shown, look).svg("Replicas over time")
    return [
        scaling_finding(at),
        _table(rows),
        card("Requests within SLO, and what they cost", figure(cost, escape(COST_CAPTION))),
        card("Replicas over time", figure(over_time, escape(TIMELINE_CAPTION))),
    ]


def scaling_finding(rows: Sequence[SummaryRow]) -> str:
    """The Pareto-optimal scalers, and whether ours is one."""
    good = pareto_front(rows)
    if not good:
        return "There is no scaler to compare."
    names = ", ".join(
        f"{row.scaler} ({formatting.percent(row.success_share)}, {mean_replica_hours(row):.3g} h)" for row in good
    )
    text = f"No other scaler keeps more for fewer replica-hours than {names}."
    ours = next((row for row in rows if row.scaler == OWN_SCALER), None)
    better = [row.scaler for row in rows if ours is not None and is_scaler(row) and dominates(row, ours)]
    return f"{text} {OWN_SCALER} is beaten by {', '.join(better)}." if better else text


def best_scaler(rows: Sequence[SummaryRow]) -> SummaryRow | None:
    """The most requests within SLO; among equals, the cheapest."""
    return max(
        (row for row in rows if is_scaler(row)),
        key=lambda row: (row.success_share, -mean_replica_hours(row)),
        default=None,
    )


def _table(rows: Sequence[SummaryRow]) -> str:
    names = shown_columns(SCALER_COLUMNS, rows)
    titles = ["scaler", "policy", success_title(rows), *(COLUMNS[name].title for name in names)]
    bodies = []
    for load in dict.fromkeys(one.load for one in rows):
        group = [one for one in rows if one.load == load]
        good = pareto_front(group)
        lines = [group_row(f"load {formatting.load_in_replicas(load)}" if load else "as recorded", len(titles))]
        for one in group:
            kind = "best" if one in good else "" if is_scaler(one) else "reference"
            cells = [escape(one.policy), escape(formatting.percent(one.success_share))]
            cells += [with_half_width(one.cell(name)) for name in names]
            lines.append(row(escape(one.scaler) + badge("Pareto-optimal") * (one in good), cells, kind))
        bodies.append(lines)
    meanings = meanings_of(["within_slo", *names]) | {"Pareto-optimal": PARETO_MEANING}
    return card("Results", table(titles, *bodies), definitions(meanings))
