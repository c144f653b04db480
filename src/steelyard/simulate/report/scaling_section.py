"""The part of a report about a scenario with a scaler: finding, table, charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..engine.result import RunResult
from ..scenario.scaler_spec import base_scaler
from . import formatting
from .charts import SeriesStyle, truncate_label
from .formatting import percent, round_seconds
from .html import badge, card, definitions, escape, figure, group_row, row, table, with_half_width
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
from .svg import INK, LINE_HEIGHT, SERIES, SOFT, WIDTH, Axes, Drawing, linear, linear_ticks

OWN_SCALER = "work"
PANEL_HEIGHT = 124
MAX_REPLICAS_PER_OFFERED = 2.5  # of the y axis: an extreme scaler would flatten the others
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


def scaling_section(runs: Sequence[RunResult], rows: Sequence[SummaryRow]) -> list[str]:
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
    """The most requests within SLO, then the cheapest."""
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


def scaler_styles(scalers: Sequence[str]) -> dict[str, SeriesStyle]:
    """By name without options; ours has the first colour."""
    names = sorted(dict.fromkeys(base_scaler(scaler) for scaler in scalers), key=lambda name: name != OWN_SCALER)
    return {
        name: SeriesStyle(SERIES[place % len(SERIES)], place, first=name == OWN_SCALER)
        for place, name in enumerate(names)
    }


def slo_by_cost(rows: Sequence[SummaryRow], look: Mapping[str, SeriesStyle]) -> Drawing:
    drawing = Drawing(312)
    names = draw_slo_by_cost(drawing, (76, 14, 520, 252), rows, look, "requests answered within SLO")
    for place, name in enumerate(names):
        y = 22 + place * LINE_HEIGHT
        look[name].point(drawing, 622, y, 4)
        drawing.text(634, y + 3, truncate_label(name), look="ink")
    drawing.text(616, 30 + len(names) * LINE_HEIGHT, "large: with its defaults")
    return drawing


def draw_slo_by_cost(
    drawing: Drawing,
    place: tuple[float, float, float, float],
    rows: Sequence[SummaryRow],
    look: Mapping[str, SeriesStyle],
    label: str = "",
) -> list[str]:
    """`place`: left, top, width, height. Returns the names of the scalers drawn."""
    lines: dict[str, list[SummaryRow]] = {}
    for one in sorted(rows, key=mean_replica_hours):
        lines.setdefault(base_scaler(one.scaler), []).append(one)
    hours = _with_margin([mean_replica_hours(one) for one in rows])
    shares = _with_margin([100 * one.success_share for one in rows])
    axes = Axes(drawing, *place, linear(*hours), linear(*shares))
    axes.grid_x([(value, f"{value:g}") for value in linear_ticks(*hours)], "replica-hours, cold starts included")
    axes.grid_y([(value, f"{value:g} %") for value in linear_ticks(*shares)], label)
    for name, points in sorted(lines.items(), key=lambda item: look[item[0]].first):
        places = axes.places((mean_replica_hours(one), 100 * one.success_share) for one in points)
        if is_scaler(points[0]):
            look[name].line(drawing, places, opacity=0.45)
        for one, (x, y) in zip(points, places, strict=True):
            look[name].point(drawing, x, y, 3 if "@" in one.scaler else 5.5)
    return list(lines)


def _with_margin(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def replicas_over_time(runs: Sequence[RunResult], look: Mapping[str, SeriesStyle]) -> Drawing:
    """One panel a scaler."""
    drawing = Drawing(PANEL_HEIGHT * len(runs) + 30)
    end = max(max(run.fleet.times, default=0.0) for run in runs if run.fleet is not None) or 1.0
    highest = 1.05 * max(_y_limit(run) for run in runs)  # comparable panels
    unit, label = _unit(end)
    times = [(value * unit, f"{value:g}") for value in linear_ticks(0, end / unit)]
    counts = [(value, f"{value:g}") for value in linear_ticks(0, highest, 4)]
    for place, run in enumerate(runs):
        top = PANEL_HEIGHT * place + 24
        axes = Axes(drawing, 60, top, WIDTH - 80, PANEL_HEIGHT - 42, linear(0, end), linear(0, highest))
        axes.grid_y(counts)
        axes.grid_x(times, label if place == len(runs) - 1 else "")
        drawing.text(axes.left, top - 8, _title(run), look="bold")
        _draw_fleet(axes, run, look[base_scaler(run.scaler)])
    return drawing


def _draw_fleet(axes: Axes, run: RunResult, style: SeriesStyle) -> None:
    fleet, drawing = run.fleet, axes.drawing
    if fleet is None or not fleet.times:
        return
    ready = axes.places(zip(fleet.times, fleet.ready, strict=True))
    started = axes.places(zip(fleet.times, map(sum, zip(fleet.ready, fleet.starting, strict=True)), strict=True))
    drawing.area(started, ready, style.colour, 0.25, steps=True)
    drawing.line(axes.places(zip(fleet.times, fleet.offered, strict=True)), INK, width=0.7, opacity=0.6)
    drawing.line(ready, style.colour, steps=True)
    for when, late in zip(fleet.times, fleet.late, strict=True):
        if late > 0.01:
            drawing.line([(axes.x(when), axes.bottom - 3), (axes.x(when), axes.bottom + 3)], SOFT, width=1)


def _title(run: RunResult) -> str:
    assert run.fleet is not None
    kept = percent(run.share(run.within_slo))
    hours, peak = run.fleet.replica_hours, run.fleet.peak_replicas
    return f"{truncate_label(run.scaler)}: {kept} within SLO, {hours:.3g} replica-hours, at most {peak} replicas"


def _y_limit(run: RunResult) -> float:
    fleet = run.fleet
    if fleet is None or not fleet.times:
        return 1.0
    started = max(map(sum, zip(fleet.ready, fleet.starting, strict=True)))
    offered = max(fleet.offered)
    return max(1.0, offered, min(started, MAX_REPLICAS_PER_OFFERED * offered))


def _unit(seconds: float) -> tuple[float, str]:
    if seconds > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds > 600 else (1.0, f"seconds, up to {round_seconds(round(seconds))}")
