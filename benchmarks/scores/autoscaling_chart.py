"""SLO attainment against replica-hours, a panel a scenario, as one SVG for the docs, light or dark as the page is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from steelyard.simulate.report.html import PAGE_STYLE
from steelyard.simulate.report.scaling_section import draw_slo_by_cost, scaler_styles
from steelyard.simulate.report.summary import SummaryRow
from steelyard.simulate.report.svg import Drawing
from steelyard.simulate.scenario.schema import Scenario

TITLE = "Requests within SLO against replica-hours, by scaler"
COLUMNS = 3
CHART_WIDTH, ROW_HEIGHT, LEGEND_HEIGHT = 840, 230, 30  # of the whole, of a row, of the legend


def chart(scenarios: Sequence[Scenario], rows: Sequence[SummaryRow]) -> str:
    svg = drawn(scenarios, rows).svg(TITLE)
    variables = "".join(
        re.findall(r":root \{[^}]*\}|@media \(prefers-color-scheme: dark\) \{\s*:root \{[^}]*\}\s*\}", PAGE_STYLE)
    )
    back = '<rect width="100%" height="100%" style="fill: var(--card)"/>'
    at = svg.index(">") + 1
    opening = svg[:at].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    words = f"<title>{TITLE}</title><desc>The tables beside it have the same figures.</desc>"
    text = "text { font: 10px 'DejaVu Sans', Verdana, sans-serif; fill: var(--soft); }"
    inks = ".ink, .bold { fill: var(--ink); } .bold { font-weight: 600; }"
    return f"{opening}{words}<style>{variables} {text} {inks}</style>{back}{svg[at:]}\n"


def drawn(scenarios: Sequence[Scenario], rows: Sequence[SummaryRow]) -> Drawing:
    drawing = Drawing(LEGEND_HEIGHT + ROW_HEIGHT * -(-len(scenarios) // COLUMNS), CHART_WIDTH)
    look = scaler_styles([row.scaler for row in rows])
    for place, (name, style) in enumerate(look.items()):
        style.point(drawing, 50 + 76 * place, 16, 4.5)
        drawing.text(60 + 76 * place, 20, name, look="ink")
    text = "large: as it comes, over all seeds; small: its own knob turned. Up and to the left is better"
    drawing.text(60 + 76 * len(look), 20, text)
    for place, scenario in enumerate(scenarios):
        left, top = (
            52 + (CHART_WIDTH - 8) / COLUMNS * (place % COLUMNS),
            LEGEND_HEIGHT + ROW_HEIGHT * (place // COLUMNS),
        )
        for line, words in enumerate(scenario.name.replace(", cold start", ",\ncold start").splitlines()):
            drawing.text(left, top + 14 + 13 * line, words, look="bold")
        at = (left, top + 36, (CHART_WIDTH - 8) / COLUMNS - 66, ROW_HEIGHT - 86)
        draw_slo_by_cost(drawing, at, [row for row in rows if row.scenario == scenario.name], look)
    return drawing
