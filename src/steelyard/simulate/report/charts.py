"""The latency charts of a report. Each says one thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, log10

from ...core.policies import POLICIES
from ...core.statistics.histogram import Histogram
from ...units import format_seconds
from ..run import IDEAL, base_policy, split_policy
from . import formatting
from .summary import QUANTILES, SummaryRow
from .svg import INK, LINE_HEIGHT, SERIES, WIDTH, Axes, Drawing, Scale, linear, log_ticks, logarithmic

PLOT_WIDTH = 440
PLOT_TOP, PLOT_BOTTOM = 12, 44  # margins
DASHES: dict[object, str] = {"auto": "6 2", "unlimited": "", None: ""}  # by concurrency; a number: dotted
MAX_LABEL_CHARS = 30


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    """Colour and marker by the policy's name, dashes by its concurrency."""

    colour: str
    marker: int | None
    dash: str = ""
    first: bool = False  # drawn above the others

    def line(self, drawing: Drawing, points: Sequence[tuple[float, float]], opacity: float = 1.0) -> None:
        drawing.line(points, self.colour, dash=self.dash, opacity=opacity)

    def point(self, drawing: Drawing, x: float, y: float, radius: float = 3.2) -> None:
        if self.marker is not None:
            drawing.marker(self.marker, x, y, self.colour, radius)


def series_styles(policies: Sequence[str]) -> dict[str, SeriesStyle]:
    """In the order of the policy table, so alike in all reports."""
    names = dict.fromkeys(base_policy(policy) for policy in policies if policy != IDEAL)
    table = list(POLICIES)
    ranked = sorted(names, key=lambda name: table.index(name) if name in table else len(table))
    found = {IDEAL: SeriesStyle(INK, None, "2 2", first=True)}
    for policy in policies:
        if policy != IDEAL:
            place = ranked.index(base_policy(policy))
            # from the eleventh on colours repeat, except the first; markers do not
            colour = SERIES[place if place < len(SERIES) else 1 + (place - 1) % (len(SERIES) - 1)]
            found[policy] = SeriesStyle(colour, place, DASHES.get(split_policy(policy)[1], "1.5 2"), first=not place)
    return found


def latency_tail(
    latency: Mapping[str, Histogram], p99: Mapping[str, float], look: Mapping[str, SeriesStyle]
) -> Drawing:
    """Share of requests slower than x, on logarithmic axes."""
    policies = sorted((policy for policy, histogram in latency.items() if histogram.count), key=p99.__getitem__)
    floor = max(1e-4, min(1.0 / latency[policy].count for policy in policies))
    lines = {policy: survival(latency[policy], floor / 2) for policy in policies}
    low = min(points[0][0] for points in lines.values()) / 1.1
    high = max(points[-1][0] for points in lines.values()) * 1.1
    drawing = Drawing(max(336, LINE_HEIGHT * (len(policies) + 3) + PLOT_TOP + PLOT_BOTTOM))
    axes = _axes(drawing, 96, logarithmic(low, high), logarithmic(floor / 1.2, 1.0))
    shares = [(1 - q, f"{name} · {100 * (1 - q):.3g} %") for name, q in QUANTILES.items() if 1 - q >= floor / 1.2]
    axes.grid_y([(1.0, "100 %"), *shares], "requests slower than this")
    ticks = [(value, formatting.round_seconds(value)) for value in log_ticks(low, high)]
    axes.grid_x(ticks, "latency, from intended send to answer (log scale)")
    for policy in sorted(policies, key=lambda policy: look[policy].first):
        look[policy].line(drawing, axes.places(lines[policy]))
        for q in QUANTILES.values():
            if 1 - q >= floor:
                look[policy].point(drawing, axes.x(latency[policy].quantile(q)), axes.y(1 - q))
    drawing.text(WIDTH - 4, axes.top + 3, "p99", anchor="end")
    for place, policy in enumerate(policies, start=1):  # the legend is the ranking
        _legend_entry(axes, axes.top + LINE_HEIGHT * place, policy, p99[policy], look[policy])
    return drawing


def survival(histogram: Histogram, floor: float) -> list[tuple[float, float]]:
    """Seconds and the share of requests above, no finer than the eye."""
    xs, ys = histogram.cdf(len(histogram.counts))
    points = [(xs[0], 1.0)]
    for x, y in zip(xs, ys, strict=True):
        share = max(1.0 - y, floor)
        last_x, last_share = points[-1]
        if log10(x / last_x) > 0.015 or log10(last_share / share) > 0.03:
            points.append((x, share))
    return [*points, (xs[-1], floor)]  # nothing is slower than the slowest


def p99_by_load(rows: Sequence[SummaryRow], look: Mapping[str, SeriesStyle]) -> Drawing:
    lines: dict[str, list[SummaryRow]] = {}
    for row in sorted(rows, key=lambda row: row.load):
        if not isnan(row.p99.mean):
            lines.setdefault(row.policy, []).append(row)
    means = [row.p99.mean for points in lines.values() for row in points]
    loads = sorted({row.load for row in rows})
    low, high, margin = min(means) / 1.8, max(means) * 1.8, 0.04 * (loads[-1] - loads[0])
    drawing = Drawing(max(312, LINE_HEIGHT * len(lines) + PLOT_TOP + PLOT_BOTTOM))
    axes = _axes(drawing, 76, linear(loads[0] - margin, loads[-1] + margin), logarithmic(low, high))
    axes.grid_x([(load, f"{100 * load:g} %") for load in loads], "load, share of the fleet's capacity")
    ticks = [(value, formatting.round_seconds(value)) for value in log_ticks(low, high)]
    axes.grid_y(ticks, "p99 latency (log scale)")
    for policy, points in sorted(lines.items(), key=lambda item: look[item[0]].first):
        if not any(isnan(row.p99.half_width) for row in points):
            upper = axes.places((row.load, row.p99.mean + row.p99.half_width) for row in points)
            lower = axes.places((row.load, row.p99.mean - row.p99.half_width) for row in points)
            drawing.area(upper, lower, look[policy].colour, 0.09)
        places = axes.places((row.load, row.p99.mean) for row in points)
        look[policy].line(drawing, places)
        for x, y in places:
            look[policy].point(drawing, x, y)
    _label_ends(axes, {policy: points[-1] for policy, points in lines.items()}, look)
    return drawing


def _label_ends(axes: Axes, ends: Mapping[str, SummaryRow], look: Mapping[str, SeriesStyle]) -> None:
    height = axes.bottom - axes.top
    ordered = sorted(ends, key=lambda policy: ends[policy].p99.mean)
    wanted = [(axes.bottom - axes.y(ends[policy].p99.mean)) / height for policy in ordered]
    for policy, share in zip(ordered, spread_labels(wanted, LINE_HEIGHT / height), strict=True):
        row, y = ends[policy], axes.bottom - share * height
        thread = [(axes.x(row.load), axes.y(row.p99.mean)), (axes.right + 9, y), (axes.right + 18, y)]
        axes.drawing.line(thread, look[policy].colour, width=0.7, opacity=0.7)
        _legend_entry(axes, y, policy, row.p99.mean, look[policy])


def spread_labels(wanted: Sequence[float], gap: float) -> list[float]:
    """Places near the wanted ones (ascending, in 0 to 1), at least `gap` apart."""
    placed: list[float] = []
    for place in wanted:
        placed.append(max(place, placed[-1] + gap) if placed else place)
    ceiling = 1.0
    for n in reversed(range(len(placed))):
        placed[n] = min(placed[n], ceiling)
        ceiling = placed[n] - gap
    return placed


def _axes(drawing: Drawing, left: float, x: Scale, y: Scale) -> Axes:
    return Axes(drawing, left, PLOT_TOP, PLOT_WIDTH, drawing.height - PLOT_TOP - PLOT_BOTTOM, x, y)


def _legend_entry(axes: Axes, y: float, policy: str, p99: float, style: SeriesStyle) -> None:
    left = axes.right + 18
    style.line(axes.drawing, [(left, y), (left + 26, y)])
    style.point(axes.drawing, left + 13, y)
    axes.drawing.text(left + 34, y + 3, truncate_label(formatting.policy_label(policy)), look="ink")
    axes.drawing.text(WIDTH - 4, y + 3, format_seconds(p99), anchor="end")


def truncate_label(name: str) -> str:
    return name if len(name) <= MAX_LABEL_CHARS else "…" + name[1 - MAX_LABEL_CHARS :]
