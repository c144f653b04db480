"""The charts of scaling, as matplotlib figures: what is kept against what it costs, and replicas over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .charts import LINE, MARKERS, WIDTH, Look, short
from .frontier import cost, is_scaler
from .result import RunResult
from .scaler_names import series
from .summary import Row
from .svg import INK, SERIES, SOFT
from .wording import percent, plain_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OWN = "work"
PANEL = 1.55  # inches
LEGEND = 2.1
BEYOND = 2.5  # times the most work offered; replicas above that are cut off


def scaler_looks(scalers: Sequence[str]) -> dict[str, Look]:
    """By its name, whatever its options; ours has the first colour."""
    names = sorted(dict.fromkeys(series(scaler) for scaler in scalers), key=lambda name: name != OWN)
    return {
        name: Look(SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)], "-", 4 if name == OWN else 2)
        for place, name in enumerate(names)
    }


def against_cost(rows: Sequence[Row], look: Mapping[str, Look]) -> Figure:
    """Share that missed the promise over replica-hours: one dot a scaler and option, near the corner is better."""
    from matplotlib.figure import Figure

    height = 3.9
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((0.95 / WIDTH, 0.55 / height, (WIDTH - 0.95 - LEGEND) / WIDTH, (height - 0.75) / height))
    lines: dict[str, list[Row]] = {}
    for row in sorted(rows, key=cost):
        lines.setdefault(series(row.scaler), []).append(row)
    for name, points in lines.items():
        hours = [cost(row) for row in points]
        kept = [100 * row.good for row in points]
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


def _legend(axes: Axes, names: Sequence[str], look: Mapping[str, Look], height: float) -> None:
    step = LINE / (height - 0.75)
    for place, name in enumerate(names):
        y = 1.0 - (place + 0.5) * step
        axes.plot([1.06], [y], **look[name].point() | {"transform": axes.transAxes})
        axes.text(1.1, y, short(name), transform=axes.transAxes, va="center")
    note = "large: with its defaults" if names else ""
    axes.text(1.05, 1.0 - (len(names) + 0.8) * step, note, transform=axes.transAxes, va="center", color=SOFT)


def over_time(runs: Sequence[RunResult], look: Mapping[str, Look]) -> Figure:
    """Small multiples, one a scaler: replicas ready and on their way, over the work that was offered."""
    from matplotlib.figure import Figure

    height = 0.6 + PANEL * len(runs)
    figure = Figure(figsize=(WIDTH, height))
    unit, word = _unit(max(max(run.fleet.times, default=0.0) for run in runs if run.fleet is not None))
    highest = max(_highest(run) for run in runs)  # the same for all panels, so that they can be compared
    for place, run in enumerate(runs):
        bottom = height - 0.2 - PANEL * (place + 1) + 0.35
        axes = figure.add_axes((0.75 / WIDTH, bottom / height, (WIDTH - 1.0) / WIDTH, (PANEL - 0.5) / height))
        _panel(axes, run, look[series(run.scaler)], unit)
        axes.set_ylim(0.0, highest * 1.05)
        axes.set_title(_title(run))
        axes.grid(axis="y")
        if place == len(runs) - 1:
            axes.set_xlabel(word)
    return figure


def _panel(axes: Axes, run: RunResult, style: Look, unit: float) -> None:
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
    kept = percent(run.share(run.met))
    return f"{short(run.scaler)}: {kept} kept, {run.fleet.hours:.3g} replica-hours, at most {run.fleet.most} replicas"


def _highest(run: RunResult) -> float:
    fleet = run.fleet
    if fleet is None or not fleet.times:
        return 1.0
    started = max(ready + starting for ready, starting in zip(fleet.ready, fleet.starting, strict=True))
    offered = max(fleet.offered)
    # One that starts twenty times too many would flatten all others; how many it were is in its title.
    return max(1.0, offered, min(started, BEYOND * offered))


def _unit(seconds: float) -> tuple[float, str]:
    if seconds > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds > 600 else (1.0, f"seconds, up to {plain_seconds(round(seconds))}")
