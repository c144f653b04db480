"""The promise kept against replica-hours, a panel a scenario, as one SVG for the docs, light or dark as the page is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from steelyard.simulate.report.scaling_charts import scaler_styles
from steelyard.simulate.report.style import PAGE_STYLE
from steelyard.simulate.report.summary import SummaryRow, mean_replica_hours
from steelyard.simulate.report.svg import SOFT, chart_style, inline_svg
from steelyard.simulate.scenario.scaler_spec import base_scaler
from steelyard.simulate.scenario.schema import Scenario

TITLE = "Requests answered as promised against replica-hours, by scaler"
COLUMNS = 3
WIDTH, HEIGHT = 10.4, 2.75  # inches, of the whole and of a row


def chart(scenarios: Sequence[Scenario], rows: Sequence[SummaryRow]) -> str:
    with chart_style():
        svg = inline_svg(figure(scenarios, rows), "a", TITLE)
    variables = "".join(
        re.findall(r":root \{[^}]*\}|@media \(prefers-color-scheme: dark\) \{\s*:root \{[^}]*\}\s*\}", PAGE_STYLE)
    )
    back = '<rect width="100%" height="100%" style="fill: var(--card)"/>'
    at = svg.index(">") + 1
    opening = svg[:at].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    words = f"<title>{TITLE}</title><desc>The tables beside it have the same figures.</desc>"
    font = "text { font-family: 'DejaVu Sans', Verdana, sans-serif; }"
    return f"{opening}{words}<style>{variables} {font}</style>{back}{svg[at:]}\n"


def figure(scenarios: Sequence[Scenario], rows: Sequence[SummaryRow]) -> Any:
    from matplotlib.figure import Figure

    tall = -(-len(scenarios) // COLUMNS)
    height = HEIGHT * tall + 0.4
    whole = Figure(figsize=(WIDTH, height))
    look = scaler_styles([row.scaler for row in rows])
    for place, scenario in enumerate(scenarios):
        left = 0.62 + (WIDTH - 0.1) / COLUMNS * (place % COLUMNS)
        bottom = height - 0.4 - HEIGHT * (place // COLUMNS + 1) + 0.62
        size = ((WIDTH - 0.1) / COLUMNS - 0.8, HEIGHT - 1.0)
        axes = whole.add_axes((left / WIDTH, bottom / height, size[0] / WIDTH, size[1] / height))
        panel(axes, scenario, [row for row in rows if row.scenario == scenario.name], look)
    for place, (name, style) in enumerate(look.items()):
        x = 0.07 + 0.09 * place
        y = 1.0 - 0.18 / height
        whole.text(x, y, name, va="center")
        whole.add_artist(_dot(x - 0.012, y, style))
    text = "large: as it comes, over all seeds; small: its own knob turned. Up and to the left is better"
    whole.text(0.07 + 0.09 * len(look), 1.0 - 0.18 / height, text, va="center", color=SOFT)
    return whole


def _dot(x: float, y: float, style: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([x], [y], color=style.colour, marker=style.marker, markersize=6, linestyle="")


def panel(axes: Any, scenario: Scenario, rows: Sequence[SummaryRow], look: Any) -> None:
    lines: dict[str, list[SummaryRow]] = {}
    for row in sorted(rows, key=mean_replica_hours):
        lines.setdefault(base_scaler(row.scaler), []).append(row)
    for name, points in lines.items():
        hours, kept = [mean_replica_hours(row) for row in points], [100 * row.success_share for row in points]
        axes.plot(hours, kept, **look[name].line() | {"alpha": 0.4})
        for row, x, y in zip(points, hours, kept, strict=True):
            size = {"markersize": 9 if "@" not in row.scaler else 4.5, "zorder": 5}
            axes.plot([x], [y], **look[name].point() | size)
    axes.set_title(scenario.name.replace(", cold start", ",\ncold start"))
    axes.set_xlabel("replica-hours")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    axes.margins(0.08)
    axes.grid(axis="both")
