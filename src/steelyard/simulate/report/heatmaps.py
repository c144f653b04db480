"""Charts of each replica: requests on it over time, and its share of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..engine.result import RunResult, Timeline
from ..scenario.schema import ReplicaGroup, Scenario
from .charts import truncate_label
from .svg import INK, LINE_HEIGHT, SERIES, SOFT, WIDTH, Axes, Drawing, linear, linear_ticks

# The page inverts the pictures in dark mode.
_COLOUR_STOPS = ((0.0, 0x9EC5F4), (0.35, 0x5598E7), (0.65, 0x2264B8), (1.0, 0x0B2F60))
MAX_REPLICA_COLUMNS = 24  # beyond, replicas are shown by group
LEFT_MARGIN, RIGHT_MARGIN, PANEL_GAP = 44, 12, 24  # in user units, as all below
KEY_HEIGHT, TITLE_HEIGHT, STRIP_GAP, STRIP_HEIGHT, FOOT_HEIGHT = 34, 40, 5, 24, 34
ROW_HEIGHT, NAMES_WIDTH = 19, 168  # of the table of shares
MAX_ID_CHARS = 8


def timelines(panels: Mapping[str, Timeline], moments: Sequence[float] = ()) -> Drawing:
    """A heat map for each policy, over a strip of the queue."""
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    heat = min(176.0, max(60.0, 7.0 * max(len(panel.load) for panel in panels.values())))
    width = (WIDTH - LEFT_MARGIN - RIGHT_MARGIN - (columns - 1) * PANEL_GAP) / columns
    line_height = TITLE_HEIGHT + heat + STRIP_GAP + STRIP_HEIGHT
    drawing = Drawing(KEY_HEIGHT + lines * line_height + FOOT_HEIGHT)
    # the same scales in all panels
    most = max(4, *(max(map(max, panel.load.values())) for panel in panels.values()))
    longest = max(1, *(max(panel.waiting) for panel in panels.values()))
    end = max(panel.times[-1] for panel in panels.values())
    unit, unit_name = _time_unit(end)
    _colour_key(drawing, most)
    for place, (policy, panel) in enumerate(panels.items()):
        line, column = divmod(place, columns)
        left, top = LEFT_MARGIN + column * (width + PANEL_GAP), KEY_HEIGHT + line * line_height + TITLE_HEIGHT
        above = Axes(drawing, left, top, width, heat, linear(0, end), linear(len(panel.load) - 0.5, -0.5))
        queue_scale = linear(0, 1.05 * longest)
        below = Axes(drawing, left, above.bottom + STRIP_GAP, width, STRIP_HEIGHT, linear(0, end), queue_scale)
        _draw_load(above, policy, panel, most, names=not column)
        queued = below.places(zip(panel.times, panel.waiting, strict=True))
        drawing.area(queued, [(x, below.bottom) for x, _ in queued], SERIES[1], 0.75, steps=True)
        below.grid_y([(0, "0"), (longest, f"{longest:,}")], look="small", lines=False)
        for moment in moments:
            drawing.line([(above.x(moment), above.top), (above.x(moment), below.bottom)], INK, width=0.7, dash="2 2")
        if place + columns >= len(panels):
            ticks = [(value * unit, f"{value:g}") for value in linear_ticks(0, end / unit)]
            below.grid_x(ticks, f"simulated time, {unit_name}", look="small")
    return drawing


def _draw_load(axes: Axes, policy: str, panel: Timeline, most: int, *, names: bool) -> None:
    drawing = axes.drawing
    table = np.array(list(panel.load.values()), dtype=np.float64)
    pixels = _share_pixels(np.log1p(table) / np.log1p(most))
    drawing.image(axes.left, axes.top, axes.x(panel.times[-1]) - axes.left, axes.bottom - axes.top, pixels)
    drawing.text(axes.left, axes.top - 16, truncate_label(policy), look="bold")
    note = f"at most {int(table.max()):,} on one replica, {max(panel.waiting):,} waiting"
    drawing.text(axes.left, axes.top - 4, note, look="small")
    if names:
        shown = (id if len(id) <= MAX_ID_CHARS else f"…{id[1 - MAX_ID_CHARS :]}" for id in panel.load)
        ids = list(enumerate(shown))
        axes.grid_y(ids[:: max(1, -(-len(ids) // 6))], look="small", lines=False)
    corners = (axes.left, axes.top), (axes.right, axes.top), (axes.right, axes.bottom), (axes.left, axes.bottom)
    drawing.line([*corners, corners[0]], SOFT, width=0.4)


def _colour_key(drawing: Drawing, most: int) -> None:
    width = 208
    drawing.image(LEFT_MARGIN, 4, width, 10, _share_pixels(np.linspace(0, 1, 64)[None, :]))
    marks = [0, *(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000) if n < 0.7 * most), most]
    while len(marks) > 6:
        marks = [marks[0], *marks[1:-1:2], marks[-1]]
    for n in marks:
        x = LEFT_MARGIN + width * float(np.log1p(n) / np.log1p(most))
        drawing.text(x, 24, f"{n:,}", anchor="middle", look="small")
    drawing.text(LEFT_MARGIN + width + 10, 13, "requests on the replica, running or queued there", look="ink")
    drawing.rect(540, 4, 16, 10, SERIES[1], 0.75)
    drawing.text(562, 13, "waiting in the balancer", look="ink")


def fault_times(scenario: Scenario, end: float) -> list[float]:
    found: list[float] = []
    for fault in scenario.faults:
        found += [fault.at, fault.at + (fault.cold_start if fault.kind == "join" else fault.duration)]
    return [moment for moment in found if moment < end]


def _time_unit(longest: float) -> tuple[float, str]:
    for least, scale, unit in ((10_000, 3600.0, "hours"), (600, 60.0, "minutes"), (1, 1.0, "seconds")):
        if longest > least:
            return scale, unit
    return 1e-3, "milliseconds"


def share_table(runs: Sequence[RunResult], scenario: Scenario) -> Drawing:
    """Requests served by each replica (or group), by policy."""
    columns, capacity = _capacity_shares(scenario.fleet)
    values = np.array([capacity, *(_served_shares(run.served, scenario.fleet, len(columns)) for run in runs)])
    names = ["share of the capacity", *(truncate_label(run.policy) for run in runs)]
    drawing = Drawing(8 + ROW_HEIGHT * len(names) + 36)
    scales = linear(-0.5, len(columns) - 0.5), linear(len(names) - 0.5, -0.5)
    axes = Axes(drawing, NAMES_WIDTH, 8, WIDTH - NAMES_WIDTH - 8, ROW_HEIGHT * len(names), *scales)
    drawing.image(axes.left, axes.top, axes.right - axes.left, axes.bottom - axes.top, _ratio_pixels(values / capacity))
    look = "small ink"
    for (y, x), share in np.ndenumerate(values):
        drawing.text(axes.x(x), axes.y(y) + 3, f"{100 * share:.1f}", anchor="middle", look=look)
    drawing.line([(axes.left, axes.y(0.5)), (axes.right, axes.y(0.5))], SOFT, width=0.7)
    axes.grid_y(list(enumerate(names)), look="ink", lines=False)
    for place, name in enumerate(columns):
        drawing.text(axes.x(place), axes.bottom + LINE_HEIGHT, name, anchor="middle", look="small")
    label = "replica" if len(columns) > len(scenario.fleet) else "group of replicas"
    drawing.text((axes.left + axes.right) / 2, axes.bottom + 2 * LINE_HEIGHT, label, anchor="middle")
    return drawing


def _capacity_shares(fleet: Sequence[ReplicaGroup]) -> tuple[list[str], list[float]]:
    total = sum(group.capacity for group in fleet)
    if sum(group.count for group in fleet) > MAX_REPLICA_COLUMNS:
        names = [f"{g.count:,} {g.engine_name if g.engine is not None else f'of speed {g.speed:g}'}" for g in fleet]
        return names, [g.capacity / total for g in fleet]
    each = [g.capacity / g.count / total for g in fleet for _ in range(g.count)]
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


def _ratio_pixels(ratio: NDArray[np.float64]) -> NDArray[np.uint8]:
    """None at 1, orange above, blue below, full at twice and half."""
    lean = np.clip(np.log2(np.maximum(ratio, 1e-9)), -1.0, 1.0)
    pixels = np.empty((*lean.shape, 4))
    pixels[...] = np.where((lean > 0)[..., None], (0xE6, 0x7E, 0x30, 0), (0x3B, 0x86, 0xDD, 0))
    pixels[..., 3] = 200 * np.abs(lean)
    return pixels.round().astype(np.uint8)


def _share_pixels(share: NDArray[np.float64]) -> NDArray[np.uint8]:
    places = [place for place, _ in _COLOUR_STOPS]
    channels = [
        np.interp(share, places, [(colour >> shift) & 0xFF for _, colour in _COLOUR_STOPS]) for shift in (16, 8, 0)
    ]
    pixels = np.stack([*channels, 255 * np.clip(share / 0.25, 0, 1)], axis=-1)
    return np.asarray(pixels.round().astype(np.uint8))
