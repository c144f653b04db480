"""The charts of scaling: requests within SLO against their cost, and replicas over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..engine.result import RunResult
from ..scenario.scaler_spec import base_scaler
from .charts import SeriesStyle, truncate_label
from .formatting import percent, round_seconds
from .summary import SummaryRow, is_scaler, mean_replica_hours
from .svg import INK, LINE_HEIGHT, SERIES, SOFT, WIDTH, Axes, Drawing, linear, linear_ticks

OWN_SCALER = "work"
PANEL_HEIGHT = 124
MAX_REPLICAS_PER_OFFERED = 2.5  # times the most work offered; replicas above that are cut off


def scaler_styles(scalers: Sequence[str]) -> dict[str, SeriesStyle]:
    """By its name, whatever its options; ours has the first colour."""
    names = sorted(dict.fromkeys(base_scaler(scaler) for scaler in scalers), key=lambda name: name != OWN_SCALER)
    return {
        name: SeriesStyle(SERIES[place % len(SERIES)], place, first=name == OWN_SCALER)
        for place, name in enumerate(names)
    }


def slo_by_cost(rows: Sequence[SummaryRow], look: Mapping[str, SeriesStyle]) -> Drawing:
    """Requests within SLO over replica-hours: one dot a scaler and option, up and to the left is better."""
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
    """At this place (left, top, width, height). The names of the scalers drawn."""
    lines: dict[str, list[SummaryRow]] = {}
    for row in sorted(rows, key=mean_replica_hours):
        lines.setdefault(base_scaler(row.scaler), []).append(row)
    hours = _with_margin([mean_replica_hours(row) for row in rows])
    shares = _with_margin([100 * row.success_share for row in rows])
    axes = Axes(drawing, *place, linear(*hours), linear(*shares))
    axes.grid_x([(value, f"{value:g}") for value in linear_ticks(*hours)], "replica-hours, cold starts included")
    axes.grid_y([(value, f"{value:g} %") for value in linear_ticks(*shares)], label)
    for name, points in sorted(lines.items(), key=lambda item: look[item[0]].first):
        places = axes.places((mean_replica_hours(row), 100 * row.success_share) for row in points)
        if is_scaler(points[0]):
            look[name].line(drawing, places, opacity=0.45)
        for row, (x, y) in zip(points, places, strict=True):
            look[name].point(drawing, x, y, 3 if "@" in row.scaler else 5.5)
    return list(lines)


def _with_margin(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def replicas_over_time(runs: Sequence[RunResult], look: Mapping[str, SeriesStyle]) -> Drawing:
    """Small multiples, one a scaler: replicas ready and on their way, over the work that was offered."""
    drawing = Drawing(PANEL_HEIGHT * len(runs) + 30)
    end = max(max(run.fleet.times, default=0.0) for run in runs if run.fleet is not None) or 1.0
    highest = 1.05 * max(_y_limit(run) for run in runs)  # the same for all panels, so that they can be compared
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
    # One that starts twenty times too many would flatten all others; how many it were is in its title.
    return max(1.0, offered, min(started, MAX_REPLICAS_PER_OFFERED * offered))


def _unit(seconds: float) -> tuple[float, str]:
    if seconds > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds > 600 else (1.0, f"seconds, up to {round_seconds(round(seconds))}")
