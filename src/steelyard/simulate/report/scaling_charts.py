"""The charts of scaling, as matplotlib figures: what is kept against what it costs, and replicas over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..engine.result import RunResult
from ..scenario.scaler_spec import base_scaler
from .charts import FIGURE_WIDTH_INCHES, LABEL_HEIGHT_INCHES, MARKERS, SeriesStyle, truncate_label
from .formatting import percent, round_seconds
from .summary import SummaryRow, is_scaler, mean_replica_hours
from .svg import INK, SERIES, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OWN_SCALER = "work"
PANEL_HEIGHT_INCHES = 1.55  # inches
LEGEND_WIDTH_INCHES = 2.1
MAX_REPLICAS_PER_OFFERED = 2.5  # times the most work offered; replicas above that are cut off


def scaler_styles(scalers: Sequence[str]) -> dict[str, SeriesStyle]:
    """By its name, whatever its options; ours has the first colour."""
    names = sorted(dict.fromkeys(base_scaler(scaler) for scaler in scalers), key=lambda name: name != OWN_SCALER)
    return {
        name: SeriesStyle(
            SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)], "-", 4 if name == OWN_SCALER else 2
        )
        for place, name in enumerate(names)
    }


def slo_by_cost(rows: Sequence[SummaryRow], look: Mapping[str, SeriesStyle]) -> Figure:
    """Share that missed the promise over replica-hours: one dot a scaler and option, near the corner is better."""
    from matplotlib.figure import Figure

    height = 3.9
    figure = Figure(figsize=(FIGURE_WIDTH_INCHES, height))
    axes = figure.add_axes(
        (
            0.95 / FIGURE_WIDTH_INCHES,
            0.55 / height,
            (FIGURE_WIDTH_INCHES - 0.95 - LEGEND_WIDTH_INCHES) / FIGURE_WIDTH_INCHES,
            (height - 0.75) / height,
        )
    )
    lines: dict[str, list[SummaryRow]] = {}
    for row in sorted(rows, key=mean_replica_hours):
        lines.setdefault(base_scaler(row.scaler), []).append(row)
    for name, points in lines.items():
        hours = [mean_replica_hours(row) for row in points]
        kept = [100 * row.success_share for row in points]
        if is_scaler(points[0]):
            axes.plot(hours, kept, **look[name].line() | {"alpha": 0.45})
        for row, x, y in zip(points, hours, kept, strict=True):
            default = "@" not in row.scaler
            axes.plot([x], [y], **look[name].point() | {"markersize": 9 if default else 5, "zorder": 5})
    axes.set_xlabel("replica-hours, cold starts included")
    axes.set_ylabel("requests answered as promised")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes.margins(0.06)
    axes.grid(axis="both")
    _legend(axes, list(lines), look, height)
    return figure


def _legend(axes: Axes, names: Sequence[str], look: Mapping[str, SeriesStyle], height: float) -> None:
    step = LABEL_HEIGHT_INCHES / (height - 0.75)
    for place, name in enumerate(names):
        y = 1.0 - (place + 0.5) * step
        axes.plot([1.06], [y], **look[name].point() | {"transform": axes.transAxes})
        axes.text(1.1, y, truncate_label(name), transform=axes.transAxes, va="center")
    note = "large: with its defaults" if names else ""
    axes.text(1.05, 1.0 - (len(names) + 0.8) * step, note, transform=axes.transAxes, va="center", color=SOFT)


def replicas_over_time(runs: Sequence[RunResult], look: Mapping[str, SeriesStyle]) -> Figure:
    """Small multiples, one a scaler: replicas ready and on their way, over the work that was offered."""
    from matplotlib.figure import Figure

    height = 0.6 + PANEL_HEIGHT_INCHES * len(runs)
    figure = Figure(figsize=(FIGURE_WIDTH_INCHES, height))
    unit, word = _unit(max(max(run.fleet.times, default=0.0) for run in runs if run.fleet is not None))
    highest = max(_y_limit(run) for run in runs)  # the same for all panels, so that they can be compared
    for place, run in enumerate(runs):
        bottom = height - 0.2 - PANEL_HEIGHT_INCHES * (place + 1) + 0.35
        axes = figure.add_axes(
            (
                0.75 / FIGURE_WIDTH_INCHES,
                bottom / height,
                (FIGURE_WIDTH_INCHES - 1.0) / FIGURE_WIDTH_INCHES,
                (PANEL_HEIGHT_INCHES - 0.5) / height,
            )
        )
        _panel(axes, run, look[base_scaler(run.scaler)], unit)
        axes.set_ylim(0.0, highest * 1.05)
        axes.set_title(_title(run))
        axes.grid(axis="y")
        if place == len(runs) - 1:
            axes.set_xlabel(word)
    return figure


def _panel(axes: Axes, run: RunResult, style: SeriesStyle, unit: float) -> None:
    fleet = run.fleet
    assert fleet is not None
    times = [when / unit for when in fleet.times]
    started = [ready + starting for ready, starting in zip(fleet.ready, fleet.starting, strict=True)]
    axes.fill_between(times, fleet.ready, started, step="post", color=style.colour, alpha=0.25, linewidth=0, zorder=1)
    axes.plot(times, fleet.ready, drawstyle="steps-post", color=style.colour, zorder=3)
    axes.plot(times, fleet.offered, color=INK, linewidth=0.6, alpha=0.6, zorder=2)
    missed = [when for when, late in zip(times, fleet.late, strict=True) if late > 0.01]
    axes.plot(missed, [0.0] * len(missed), color=SOFT, marker="|", markersize=5, linestyle="", clip_on=False, zorder=4)
    axes.set_xlim(0.0, times[-1] if times else 1.0)


def _title(run: RunResult) -> str:
    assert run.fleet is not None
    kept = percent(run.share(run.within_slo))
    hours, peak = run.fleet.replica_hours, run.fleet.peak_replicas
    return f"{truncate_label(run.scaler)}: {kept} kept, {hours:.3g} replica-hours, at most {peak} replicas"


def _y_limit(run: RunResult) -> float:
    fleet = run.fleet
    if fleet is None or not fleet.times:
        return 1.0
    started = max(ready + starting for ready, starting in zip(fleet.ready, fleet.starting, strict=True))
    offered = max(fleet.offered)
    # One that starts twenty times too many would flatten all others; how many it were is in its title.
    return max(1.0, offered, min(started, MAX_REPLICAS_PER_OFFERED * offered))


def _unit(seconds: float) -> tuple[float, str]:
    if seconds > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds > 600 else (1.0, f"seconds, up to {round_seconds(round(seconds))}")
