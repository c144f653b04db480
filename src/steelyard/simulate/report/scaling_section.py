"""The part of a report about a scenario in which a scaler decides how many replicas there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from ..engine.result import RunResult
from ..scenario.schema import Scenario
from . import formatting
from .findings import describe, warnings
from .scaling_charts import OWN_SCALER, replicas_over_time, scaler_styles, slo_by_cost
from .summary import SummaryRow, dominates, is_scaler, mean_replica_hours, pareto_front, scenarios_with_slo, summarise
from .svg import inline_svg

COST_CAPTION = (
    "Up and to the left is better: more requests answered as promised, for fewer replica-hours. A large dot is a "
    "scaler with its defaults, a small one has options of its own; the line joins those of one scaler."
)
TIMELINE_CAPTION = (
    "One panel a scaler. The coloured line is the replicas that are ready, the pale area above it those being started, "
    "the thin line the work that comes, in replicas' worth. Marks at the bottom: more than 1 % of the requests that "
    "ended then were late, refused or failed. First seed."
)


def scaling_section(number: int, scenario: Scenario, runs: Sequence[RunResult], alone: bool) -> str:
    rows = summarise(runs, scenarios_with_slo([scenario]))
    load = max(row.load for row in rows)
    at = [row for row in rows if row.load == load]
    look = scaler_styles([row.scaler for row in rows])
    policy = at[0].policy
    shown = [r for r in runs if r.load == load and r.seed == runs[0].seed and r.policy == policy and r.fleet]
    cost_chart = inline_svg(
        slo_by_cost([row for row in at if row.policy == policy], look), f"s{number}c1", "Promise kept against cost"
    )
    time_chart = inline_svg(replicas_over_time(shown, look), f"s{number}c2", "Replicas over time")
    return "\n".join(
        [
            f'<section id="s{number}"><h2>{"Findings" if alone else _(scenario.name)}</h2>',
            f'<p class="soft">{_(describe(scenario))}</p><p class="finding">{_(scaling_finding(at))}</p>',
            *(f'<p class="warning">{_(text)}</p>' for text in warnings(scenario, runs)),
            _table(rows),
            _card("What is kept, and what it costs", cost_chart, COST_CAPTION),
            _card("Replicas over time", time_chart, TIMELINE_CAPTION),
            "</section>",
        ]
    )


def scaling_finding(rows: Sequence[SummaryRow]) -> str:
    """Whom nobody beats, and whether ours is among them."""
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
    """Who keeps the promise most often; of those that are level, the cheapest."""
    return max(
        (row for row in rows if is_scaler(row)),
        key=lambda row: (row.success_share, -mean_replica_hours(row)),
        default=None,
    )


def _table(rows: Sequence[SummaryRow]) -> str:
    columns: dict[str, Callable[[SummaryRow], str]] = {
        "policy": lambda row: _(row.policy),
        "kept promise": lambda row: _(formatting.percent(row.success_share)),
        "replica-hours": lambda row: _with_half_width(formatting.number(row.replica_hours)),
        "mean replicas": lambda row: _(formatting.number(row.mean_replicas)[0]),
        "most": lambda row: _(formatting.number(row.peak_replicas)[0]),
        "starts": lambda row: _(formatting.number(row.starts)[0]),
        "p50": lambda row: _(formatting.seconds(row.p50)[0]),
        "p99": lambda row: _with_half_width(formatting.seconds(row.p99)),
        "failed": lambda row: _(formatting.percent(row.failed)),
        "refused": lambda row: _(formatting.percent(row.refused)),
    }
    head = "".join(f'<th scope="col">{_(name)}</th>' for name in ("scaler", *columns))
    bodies = []
    for load in dict.fromkeys(row.load for row in rows):
        group = [row for row in rows if row.load == load]
        good = pareto_front(group)
        name = f"load {formatting.load_in_replicas(load)}" if load else "as recorded"
        lines = [f'<tr class="group"><th scope="rowgroup" colspan="{len(columns) + 1}">{_(name)}</th></tr>']
        for row in group:
            badge = '<span class="badge">not beaten</span>' if row in good else ""
            cells = "".join(f"<td>{get(row)}</td>" for get in columns.values())
            kind = "best" if row in good else "" if is_scaler(row) else "reference"
            lines.append(f'<tr class="{kind}"><th scope="row">{_(row.scaler)}{badge}</th>{cells}</tr>')
        bodies.append(f"<tbody>{''.join(lines)}</tbody>")
    return (
        f'<div class="card"><h3>Results</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"{''.join(bodies)}</table></div>{_COLUMN_LEGEND}</div>"
    )


_COLUMN_LEGEND = (
    "<details><summary>What the columns mean</summary><dl>"
    "<dt>kept promise</dt><dd>answered within the SLA and the deadline, of all requests</dd>"
    "<dt>replica-hours</dt><dd>of every replica from the order to start it until it has finished what it had</dd>"
    "<dt>most</dt><dd>replicas at once, those that finish what they have aside</dd>"
    "<dt>not beaten</dt><dd>no other scaler keeps at least as much for no more, and is better in one of the two</dd>"
    "</dl></details>"
)


def _(text: str) -> str:
    return escape(text, quote=True).replace(" %", "\N{NO-BREAK SPACE}%")


def _with_half_width(texts: tuple[str, str]) -> str:
    return f'{_(texts[0])} <span class="half">{_(texts[1])}</span>' if texts[1] else _(texts[0])


def _card(title: str, svg: str, reading: str) -> str:
    figure = f'<figure><div class="scroll">{svg}</div><figcaption>{_(reading)}</figcaption></figure>'
    return f'<div class="card"><h3>{_(title)}</h3>{figure}</div>'
