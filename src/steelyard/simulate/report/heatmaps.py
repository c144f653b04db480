"""Charts of what each replica did: requests on it over time, and its share of all that was served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engine.result import RunResult
from ..scenario.schema import ReplicaGroup, Scenario
from .charts import FIGURE_WIDTH_INCHES, truncate_label
from .svg import FAINT, INK, SERIES, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From nothing (the card shines through) to dark; the page inverts the pictures in the dark.
_COLOUR_STOPS = ((0.0, 0x9EC5F4), (0.35, 0x5598E7), (0.65, 0x2264B8), (1.0, 0x0B2F60))
MAX_REPLICA_COLUMNS = 24  # beyond, replicas are shown by group


@dataclass(frozen=True, slots=True)
class _SharedScales:
    """The same for all panels, so that they can be compared."""

    most: int  # requests on one replica
    longest: int  # waiting
    unit: float  # seconds
    end: float  # seconds
    moments: list[float]  # seconds


def timelines(runs: Sequence[RunResult], scenario: Scenario) -> Figure:
    """Small multiples: a heat map of the replicas over time for each policy, over a strip of the waiting line."""
    from matplotlib.figure import Figure

    columns = min(3, len(runs))
    lines = -(-len(runs) // columns)
    replicas = max(len(run.timeline.load) for run in runs)
    heat, strip, title, gap = min(2.2, max(0.75, 0.085 * replicas)), 0.3, 0.5, 0.06
    top, bottom, left, right, between = 0.42, 0.42, 0.55, 0.15, 0.3
    height = top + bottom + lines * (title + heat + gap + strip)
    width = (FIGURE_WIDTH_INCHES - left - right - (columns - 1) * between) / columns
    end = max(run.timeline.times[-1] for run in runs)
    unit, unit_name = _time_unit(end)
    scales = _SharedScales(
        most=max(4, *(max(map(max, run.timeline.load.values())) for run in runs)),
        longest=max(1, *(max(run.timeline.waiting) for run in runs)),
        unit=unit,
        end=end,
        moments=fault_times(scenario, end),
    )
    figure = Figure(figsize=(FIGURE_WIDTH_INCHES, height))
    _colour_key(figure, scales.most, height)
    for place, run in enumerate(runs):
        line, column = divmod(place, columns)
        x = (left + column * (width + between)) / FIGURE_WIDTH_INCHES
        y = height - top - line * (title + heat + gap + strip) - title - heat
        above = figure.add_axes((x, y / height, width / FIGURE_WIDTH_INCHES, heat / height))
        below = figure.add_axes((x, (y - gap - strip) / height, width / FIGURE_WIDTH_INCHES, strip / height))
        _draw_load(above, run, scales)
        _draw_queue(below, run, scales)
        if column == 0:
            above.set_ylabel("replica")
        if place + columns >= len(runs):
            below.tick_params(labelbottom=True)
            below.set_xlabel(f"simulated time, {unit_name}")
    return figure


def _draw_load(axes: Axes, run: RunResult, scales: _SharedScales) -> None:
    table = np.array(list(run.timeline.load.values()), dtype=np.float64)
    end = run.timeline.times[-1] / scales.unit
    _draw_shares(axes, np.log1p(table) / np.log1p(scales.most), (0, end, len(table) - 0.5, -0.5))
    axes.set_title(truncate_label(run.policy), pad=13)
    note = f"at most {int(table.max()):,} on one replica, {max(run.timeline.waiting):,} waiting"
    axes.text(0, 1, note, transform=axes.transAxes, va="bottom", color=SOFT, fontsize=7)
    names = list(run.timeline.load)
    step = max(1, -(-len(names) // 6))
    axes.set_yticks(range(0, len(names), step), names[::step], fontsize=7)
    axes.tick_params(length=0, labelbottom=False)
    for side in axes.spines.values():
        side.set(visible=True, color=FAINT)
    _time_axis(axes, scales)


def _draw_queue(axes: Axes, run: RunResult, scales: _SharedScales) -> None:
    times = [time / scales.unit for time in run.timeline.times]
    axes.fill_between(times, run.timeline.waiting, step="post", color=SERIES[1], alpha=0.75, linewidth=0)
    axes.set_ylim(0, scales.longest * 1.05)
    axes.set_yticks([0, scales.longest], ["0", f"{scales.longest:,}"], fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=7, labelbottom=False)
    _time_axis(axes, scales)


def _time_axis(axes: Axes, scales: _SharedScales) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(0, scales.end / scales.unit)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    for moment in scales.moments:
        axes.axvline(moment / scales.unit, color=INK, linewidth=0.6, linestyle=(0, (2, 2)))


def _colour_key(figure: Figure, most: int, height: float) -> None:
    axes = figure.add_axes(
        (0.55 / FIGURE_WIDTH_INCHES, (height - 0.2) / height, 2.6 / FIGURE_WIDTH_INCHES, 0.12 / height)
    )
    _draw_shares(axes, np.linspace(0, 1, 64)[None, :], (0, 1, 0, 1))
    marks = [0, *(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000) if n < 0.7 * most), most]
    while len(marks) > 6:
        marks = [marks[0], *marks[1:-1:2], marks[-1]]
    axes.set_xticks([float(np.log1p(n) / np.log1p(most)) for n in marks], [f"{n:,}" for n in marks], fontsize=7)
    axes.set_yticks([])
    axes.tick_params(length=2)
    for side in axes.spines.values():
        side.set(visible=True, color=FAINT)
    axes.text(1.03, 0.5, "requests on the replica, running or queued there", transform=axes.transAxes, va="center")
    strip = figure.add_axes(
        (6.55 / FIGURE_WIDTH_INCHES, (height - 0.2) / height, 0.2 / FIGURE_WIDTH_INCHES, 0.12 / height)
    )
    strip.set(facecolor=SERIES[1], xticks=[], yticks=[])
    strip.patch.set_alpha(0.75)
    for side in strip.spines.values():
        side.set_visible(False)
    strip.text(1.4, 0.5, "waiting in the balancer", transform=strip.transAxes, va="center")


def fault_times(scenario: Scenario, end: float) -> list[float]:
    """When something was done to the fleet, before the end."""
    found: list[float] = []
    for fault in scenario.faults:
        found += [fault.at, fault.at + (fault.cold_start if fault.kind == "join" else fault.duration)]
    return [moment for moment in found if moment < end]


def _time_unit(longest: float) -> tuple[float, str]:
    for least, scale, unit in ((10_000, 3600.0, "hours"), (600, 60.0, "minutes"), (1, 1.0, "seconds")):
        if longest > least:
            return scale, unit
    return 1e-3, "milliseconds"


# ---------------------------------------------------------------------- shares


def share_table(runs: Sequence[RunResult], scenario: Scenario) -> Figure:
    """A table in colour: which share of the requests each replica (or group of them) served, under each policy."""
    from matplotlib.figure import Figure

    columns, capacity = _capacity_shares(scenario.fleet)
    table = [capacity] + [_served_shares(run.served, scenario.fleet, len(columns)) for run in runs]
    names = ["share of the capacity", *(truncate_label(run.policy) for run in runs)]
    values = np.array(table)
    left, top, bottom, right, line = 2.1, 0.1, 0.45, 0.1, 0.235
    height = top + bottom + line * len(names)
    figure = Figure(figsize=(FIGURE_WIDTH_INCHES, height))
    size = ((FIGURE_WIDTH_INCHES - left - right) / FIGURE_WIDTH_INCHES, (height - top - bottom) / height)
    axes = figure.add_axes((left / FIGURE_WIDTH_INCHES, bottom / height, *size))
    fair = np.array(capacity)
    _draw_ratios(axes, values / fair, (-0.5, len(columns) - 0.5, len(names) - 0.5, -0.5))
    for (y, x), share in np.ndenumerate(values):
        axes.text(x, y, f"{100 * share:.1f}", ha="center", va="center", fontsize=7)
    axes.axhline(0.5, color=SOFT, linewidth=0.7)
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks(range(len(columns)), columns, fontsize=7 if len(columns) > 12 else 8)
    axes.tick_params(length=0)
    axes.set_xlabel("replica" if len(columns) > len(scenario.fleet) else "group of replicas")
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def _capacity_shares(fleet: Sequence[ReplicaGroup]) -> tuple[list[str], list[float]]:
    total = sum(group.capacity for group in fleet)
    if sum(group.count for group in fleet) > MAX_REPLICA_COLUMNS:
        return [f"{g.count:,} of speed {g.speed:g}" for g in fleet], [g.capacity / total for g in fleet]
    each = [group.capacity / group.count / total for group in fleet for _ in range(group.count)]
    return [f"r{n}" for n in range(len(each))], each


def _served_shares(served: Mapping[str, int], fleet: Sequence[ReplicaGroup], columns: int) -> list[float]:
    counts = list(served.values())
    if columns != len(counts):
        grouped = []
        for group in fleet:
            grouped.append(sum(counts[: group.count]))
            counts = counts[group.count :]
        counts = grouped
    total = sum(counts)
    return [count / total if total else 0.0 for count in counts]


def _draw_ratios(axes: Axes, ratio: NDArray[np.float64], extent: tuple[float, float, float, float]) -> None:
    """Ratios as pixels: none at 1, orange above, blue below, full at twice and half."""
    lean = np.clip(np.log2(np.maximum(ratio, 1e-9)), -1.0, 1.0)
    pixels = np.empty((*lean.shape, 4))
    pixels[...] = np.where((lean > 0)[..., None], (0xE6, 0x7E, 0x30, 0), (0x3B, 0x86, 0xDD, 0))
    pixels[..., 3] = 200 * np.abs(lean)
    axes.imshow(pixels.round().astype(np.uint8), extent=extent, interpolation="none", aspect="auto")


def _draw_shares(axes: Axes, share: NDArray[np.float64], extent: tuple[float, float, float, float]) -> None:
    """Shares in 0 to 1 as pixels: one image, however many cells."""
    places = [place for place, _ in _COLOUR_STOPS]
    channels: list[Any] = [
        np.interp(share, places, [(colour >> shift) & 0xFF for _, colour in _COLOUR_STOPS]) for shift in (16, 8, 0)
    ]
    channels.append(255 * np.clip(share / 0.25, 0, 1))
    pixels = np.stack(channels, axis=-1).round().astype(np.uint8)
    axes.imshow(pixels, extent=extent, interpolation="none", aspect="auto")
