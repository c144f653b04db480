"""The charts of a report, as matplotlib figures. Each says one thing; colours are those of `svg.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, log10
from typing import TYPE_CHECKING, Any

from ...core.policies import POLICIES
from ...core.statistics.histogram import Histogram
from ..run import IDEAL, base_policy, split_policy
from . import formatting
from .summary import QUANTILES, SummaryRow
from .svg import INK, SERIES, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURE_WIDTH_INCHES = 9.4  # inches
LABEL_HEIGHT_INCHES = 0.175  # inches from one label to the next
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")
DASHES: dict[object, Any] = {"auto": (0, (5, 1.6)), "unlimited": "-", None: "-"}  # a number: dotted
MAX_LABEL_CHARS = 30  # letters of a label
LEGEND_RIGHT_EDGE = 1.48  # where the numbers of a legend end, in widths of the axes


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    """How a policy is drawn: colour and marker by its name, dashes by its concurrency."""

    colour: str
    marker: str | None
    dash: Any
    order: int = 2

    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "linestyle": self.dash, "zorder": self.order}

    def point(self) -> dict[str, Any]:
        return {"color": self.colour, "marker": self.marker or "", "markersize": 5, "linestyle": "", "clip_on": False}


def series_styles(policies: Sequence[str]) -> dict[str, SeriesStyle]:
    """The same look in all charts of a report; in the order of the table, so much the same in all reports."""
    names = dict.fromkeys(base_policy(policy) for policy in policies if policy != IDEAL)
    table = list(POLICIES)
    ranked = sorted(names, key=lambda name: table.index(name) if name in table else len(table))
    found = {IDEAL: SeriesStyle(INK, None, (0, (1.5, 1.5)), order=3)}
    for policy in policies:
        if policy != IDEAL:
            concurrency = split_policy(policy)[1]
            place = ranked.index(base_policy(policy))
            # the eleventh and on share a colour with one before, never with the first, and have their own marker
            colour = SERIES[place if place < len(SERIES) else 1 + (place - 1) % (len(SERIES) - 1)]
            dash = DASHES.get(concurrency, (0, (1, 1.4)))
            found[policy] = SeriesStyle(colour, MARKERS[place % len(MARKERS)], dash, order=2 if place else 4)
    return found


# ---------------------------------------------------------------------- latency


def latency_tail(
    latency: Mapping[str, Histogram], rows: Mapping[str, SummaryRow], look: Mapping[str, SeriesStyle]
) -> Figure:
    """Share of requests slower than x, both axes logarithmic: the far tail gets as much room as the body."""
    policies = sorted(
        (policy for policy, histogram in latency.items() if histogram.count), key=lambda p: rows[p].p99.mean
    )
    floor = max(1e-4, min(1.0 / latency[policy].count for policy in policies))
    figure, axes = _frame(height=max(4.2, LABEL_HEIGHT_INCHES * (len(policies) + 2) + 0.9), left=1.2)
    for policy in policies:
        points = survival(latency[policy], floor / 2)
        axes.plot([x for x, _ in points], [y for _, y in points], **look[policy].line())
        marks = [(latency[policy].quantile(q), 1 - q) for q in QUANTILES.values() if 1 - q >= floor]
        axes.plot([x for x, _ in marks], [y for _, y in marks], **look[policy].point())
    axes.set_yscale("log")
    axes.set_ylim(floor / 1.2, 1.0)
    shares = [(name, 1 - q) for name, q in QUANTILES.items() if 1 - q >= floor / 1.2]
    axes.set_yticks([1.0, *(share for _, share in shares)])
    axes.set_yticklabels(["100 %", *(f"{name} · {100 * share:.3g} %" for name, share in shares)])
    axes.minorticks_off()
    axes.set_ylabel("requests slower than this")
    axes.set_xlabel("latency, from intended send to answer (log scale)")
    _time_scale(axes, "x")
    axes.grid(axis="both")
    _legend(axes, policies, rows, look)
    return figure


def survival(histogram: Histogram, floor: float) -> list[tuple[float, float]]:
    """Seconds and the share of requests above, as a line no finer than the eye on two logarithmic axes."""
    xs, ys = histogram.cdf(len(histogram.counts))
    points = [(xs[0], 1.0)]
    for x, y in zip(xs, ys, strict=True):
        share = max(1.0 - y, floor)
        last_x, last_share = points[-1]
        if log10(x / last_x) > 0.015 or log10(last_share / share) > 0.03:
            points.append((x, share))
    return [*points, (xs[-1], floor)]  # nothing is slower than the slowest


def _legend(
    axes: Axes, policies: Sequence[str], rows: Mapping[str, SummaryRow], look: Mapping[str, SeriesStyle]
) -> None:
    """The legend is the ranking: best p99 first, with the number."""
    step = LABEL_HEIGHT_INCHES / _height_inches(axes)
    axes.text(LEGEND_RIGHT_EDGE, 1.0, "p99", transform=axes.transAxes, ha="right", va="center", color=SOFT)
    for place, policy in enumerate(policies, start=1):
        _legend_entry(axes, 1.0 - place * step, rows[policy], look[policy])


def _legend_entry(axes: Axes, y: float, row: SummaryRow, style: SeriesStyle) -> None:
    at: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
    axes.plot([1.04, 1.1], [y, y], **style.line(), **at)
    axes.plot([1.07], [y], **style.point() | at)
    axes.text(1.12, y, truncate_label(formatting.policy_label(row.policy)), transform=axes.transAxes, va="center")
    text = formatting.seconds(row.p99)[0]
    axes.text(LEGEND_RIGHT_EDGE, y, text, transform=axes.transAxes, ha="right", va="center", color=SOFT)


def p99_by_load(rows: Sequence[SummaryRow], look: Mapping[str, SeriesStyle]) -> Figure:
    """p99 over load, one line a policy, named at its right end."""
    lines: dict[str, list[SummaryRow]] = {}
    for row in sorted(rows, key=lambda row: row.load):
        if not isnan(row.p99.mean):
            lines.setdefault(row.policy, []).append(row)
    figure, axes = _frame(height=max(3.9, LABEL_HEIGHT_INCHES * len(lines) + 0.9), left=0.95)
    for policy, points in lines.items():
        loads = [100 * row.load for row in points]
        values = [row.p99.mean for row in points]
        axes.plot(loads, values, **look[policy].line())
        axes.plot(loads, values, **look[policy].point())
        if not any(isnan(row.p99.half_width) for row in points):
            # an interval may reach below zero, a logarithmic axis may not; the axes cut it off
            low = [max(row.p99.mean - row.p99.half_width, row.p99.mean / 100) for row in points]
            high = [row.p99.mean + row.p99.half_width for row in points]
            axes.fill_between(loads, low, high, color=look[policy].colour, alpha=0.09, linewidth=0, zorder=1)
    means = [row.p99.mean for points in lines.values() for row in points]
    axes.set_yscale("log")
    axes.set_ylim(min(means) / 1.8, max(means) * 1.8)
    _time_scale(axes, "y")
    axes.set_xticks(sorted({100 * row.load for row in rows}))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes.minorticks_off()
    axes.set_xlabel("load, share of the fleet's capacity")
    axes.set_ylabel("p99 latency (log scale)")
    axes.grid(axis="both")
    _label_ends(axes, {policy: points[-1] for policy, points in lines.items()}, look)
    return figure


def _label_ends(axes: Axes, ends: Mapping[str, SummaryRow], look: Mapping[str, SeriesStyle]) -> None:
    bottom, top = (log10(limit) for limit in axes.get_ylim())
    left, right = axes.get_xlim()
    ordered = sorted(ends, key=lambda policy: ends[policy].p99.mean)
    wanted = [(log10(ends[policy].p99.mean) - bottom) / (top - bottom) for policy in ordered]
    for policy, end, y in zip(
        ordered, wanted, spread_labels(wanted, LABEL_HEIGHT_INCHES / _height_inches(axes)), strict=True
    ):
        # from the line's last point, out of the axes, to its label
        start = (100 * ends[policy].load - left) / (right - left)
        thread: dict[str, Any] = {"color": look[policy].colour, "linewidth": 0.6, "alpha": 0.7}
        axes.plot([start, 1.02, 1.04], [end, y, y], transform=axes.transAxes, clip_on=False, **thread)
        _legend_entry(axes, y, ends[policy], look[policy])


def spread_labels(wanted: Sequence[float], gap: float) -> list[float]:
    """Places near the wanted ones (ascending, in 0 to 1) that are at least `gap` apart."""
    placed: list[float] = []
    for place in wanted:
        placed.append(max(place, placed[-1] + gap) if placed else place)
    ceiling = 1.0
    for n in reversed(range(len(placed))):
        placed[n] = min(placed[n], ceiling)
        ceiling = placed[n] - gap
    return placed


# ---------------------------------------------------------------------- what they share


def _frame(height: float, left: float) -> tuple[Figure, Axes]:
    """One pair of axes with margins in inches: no layout engine, so no surprises. The right one is for the legend."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(FIGURE_WIDTH_INCHES, height))
    bottom, top = 0.55, 0.15
    width = (FIGURE_WIDTH_INCHES - left - 0.05) / LEGEND_RIGHT_EDGE
    return figure, figure.add_axes(
        (left / FIGURE_WIDTH_INCHES, bottom / height, width / FIGURE_WIDTH_INCHES, (height - bottom - top) / height)
    )


def _height_inches(axes: Axes) -> float:
    return axes.bbox.height / axes.figure.dpi


def _time_scale(axes: Axes, which: str) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    if which == "x":
        axes.set_xscale("log")
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 300 else (1.0, 2.0, 5.0), numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: formatting.round_seconds(value))


def truncate_label(name: str) -> str:
    return name if len(name) <= MAX_LABEL_CHARS else "…" + name[1 - MAX_LABEL_CHARS :]
