"""The report of a simulation: one HTML file that needs nothing else, and is the same bytes for the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.metadata import version
from math import isnan
from typing import TYPE_CHECKING

from ...core.statistics.histogram import Histogram
from ..engine.result import RunResult
from ..run import is_reference
from ..scenario.file import to_yaml
from ..scenario.schema import Scenario
from . import formatting
from .charts import SeriesStyle, latency_tail, p99_by_load, series_styles
from .findings import describe, policy_finding, warnings
from .heatmaps import fault_times, share_table, timelines
from .scaling_section import best_scaler, scaling_section
from .style import PAGE_STYLE
from .summary import Estimate, SummaryRow, best_p99, best_within_slo, scenarios_with_slo, summarise
from .svg import chart_style, inline_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TAIL_CAPTION = (
    "Follow a line down: where it meets the row p99, one request in a hundred takes longer than the time below. Lines "
    "further to the left are faster. The lines are of all seeds together; the list, best first, has the mean of the "
    "seeds' p99, as the table."
)
LOAD_CAPTION = (
    "Lower is better, and a line that stays flat as load grows keeps its promise when it is busy. The band is the 95 % "
    "confidence interval over the seeds."
)
TIMELINE_CAPTION = (
    "One panel a policy, one row a replica: the stronger the colour, the more requests are on it. An even, faint field "
    "is good; a strong row is a replica whose requests others could have served. The strip below each panel shows the "
    "requests that wait in the balancer, free to go to whichever replica is ready first. First seed."
)
SHARE_CAPTION = (
    "Percent of all requests that each replica served. The first row is its share of the fleet's capacity: orange is "
    "more than that, blue is less. It counts requests, not work: a good policy may give a slow replica many small "
    "ones. First seed."
)


def render(scenarios: Sequence[Scenario], results: Sequence[RunResult]) -> str:
    """The whole page."""
    look = series_styles(list(dict.fromkeys(run.policy for run in results)))
    with chart_style():
        sections = [
            _section(n, scenario, [run for run in results if run.scenario == scenario.name], look, len(scenarios) == 1)
            for n, scenario in enumerate(scenarios, start=1)
        ]
    title = scenarios[0].name if len(scenarios) == 1 else f"{len(scenarios)} scenarios"
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_(title)} · Steelyard simulation</title>\n<style>{PAGE_STYLE}</style>\n</head>\n<body>",
            f'<header><p class="brand">Steelyard simulation</p><h1>{_(title)}</h1>{_run_counts(scenarios, results)}',
            "</header>\n<main>",
            _overview(scenarios, results) if len(scenarios) > 1 else "",
            *sections,
            _scenario_section(scenarios),
            "</main>",
            f"<footer>Made by Steelyard {_(version('steelyard'))}. The same scenario and seeds give the same numbers, "
            "whatever the machine; simulated time is not the time it took.</footer>\n</body>\n</html>\n",
        ]
    )


def _(text: str) -> str:
    return escape(text, quote=True).replace(" %", "\N{NO-BREAK SPACE}%")


def _run_counts(scenarios: Sequence[Scenario], results: Sequence[RunResult]) -> str:
    requests = sum(run.requests for run in results)
    policies = len({run.policy for run in results if not is_reference(run.policy)})
    scalers = len({run.scaler for run in results if run.scaler})
    compared = [f"{policies} {'policy' if policies == 1 else 'policies'}"]
    compared += [f"{scalers} {'scaler' if scalers == 1 else 'scalers'}"] if scalers else []
    return (
        f'<p class="soft">{requests:,} simulated requests in {len(results):,} runs, {" and ".join(compared)} '
        "compared. Requests come when they come (open loop), and latency "
        "counts from the moment each was meant to be sent.</p>"
    )


def _overview(scenarios: Sequence[Scenario], results: Sequence[RunResult]) -> str:
    """Who was best where: the contents of the page, and what many came for."""
    lines = []
    for n, scenario in enumerate(scenarios, start=1):
        rows = summarise((run for run in results if run.scenario == scenario.name), scenarios_with_slo(scenarios))
        highest = max(row.load for row in rows)
        at = [row for row in rows if row.load == highest]
        scaled = scenario.autoscale is not None
        winner = best_scaler(at) if scaled else best_p99(at)
        who = formatting.DASH if winner is None else f"{winner.scaler} (kept most)" if scaled else winner.policy
        cells = [_(formatting.load_in_replicas(highest) if scaled else formatting.load(highest)), _(who)]
        cells += (
            [_with_half_width(formatting.seconds(winner.p99)), _with_half_width(formatting.ratio(winner.p99_to_ideal))]
            if winner
            else ["", ""]
        )
        link = f'<th scope="row"><a href="#s{n}">{_(scenario.name)}</a></th>'
        lines.append(f"<tr>{link}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in ("scenario", "load", "best p99", "p99", "p99 ÷ ideal"))
    return (
        '<nav class="card" aria-label="Scenarios"><h2>At the highest load</h2><div class="scroll"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div></nav>"
    )


def _section(
    number: int, scenario: Scenario, runs: Sequence[RunResult], look: dict[str, SeriesStyle], alone: bool
) -> str:
    if scenario.autoscale is not None:
        return scaling_section(number, scenario, runs, alone)
    rows = summarise(runs, scenarios_with_slo([scenario]))
    loads = list(dict.fromkeys(row.load for row in rows))
    highest = max(loads)
    shown = [run for run in runs if run.load == highest and run.seed == runs[0].seed and run.timeline.times]
    charts = _Charts(f"s{number}")
    parts = [
        f'<section id="s{number}"><h2>{"Findings" if alone else _(scenario.name)}</h2>',
        f'<p class="soft">{_(describe(scenario))}</p><p class="finding">{_(policy_finding(rows, runs))}</p>',
        *(f'<p class="warning">{_(text)}</p>' for text in warnings(scenario, runs)),
        _table(rows, loads),
        _tails(charts, runs, rows, loads, look),
    ]
    above_zero = [row for row in rows if row.load and not isnan(row.p99.mean)]
    if len({row.load for row in above_zero}) > 1:
        drawn = charts.draw("p99 latency of each policy against load", lambda: p99_by_load(above_zero, look))
        parts.append(_card("p99 against load", drawn, LOAD_CAPTION))
    if shown:
        at = f"at load {formatting.load(highest)}" if highest else "as recorded"
        drawn = charts.draw(f"Requests on each replica over time, {at}", lambda: timelines(shown, scenario))
        seen = fault_times(scenario, shown[0].timeline.times[-1])
        faults = " Dashed lines: when a fault began and ended." if seen else ""
        more = f" The first {len(shown[0].timeline.load)} replicas." if len(shown[0].timeline.load) == 64 else ""
        parts.append(_card(f"Replicas over time, {at}", drawn, TIMELINE_CAPTION + more + faults))
        drawn = charts.draw(f"Share of requests each replica served, {at}", lambda: share_table(shown, scenario))
        parts.append(_card(f"Who served how much, {at}", drawn, SHARE_CAPTION))
    parts.append("</section>")
    return "\n".join(parts)


class _Charts:
    """Numbers the charts of a section, for ids that are theirs alone."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0

    def draw(self, title: str, figure: Callable[[], Figure]) -> str:
        self._count += 1
        return inline_svg(figure(), f"{self._prefix}c{self._count}", title)


def _card(title: str, svg: str, reading: str) -> str:
    return f'<div class="card"><h3>{_(title)}</h3>{_figure(svg, reading)}</div>'


def _figure(svg: str, reading: str) -> str:
    return f'<figure><div class="scroll">{svg}</div><figcaption>{_(reading)}</figcaption></figure>'


def _tails(
    charts: _Charts,
    runs: Sequence[RunResult],
    rows: Sequence[SummaryRow],
    loads: Sequence[float],
    look: dict[str, SeriesStyle],
) -> str:
    """The highest load in full view, the others one click away."""
    drawn: dict[float, str] = {}
    for load in sorted(loads, reverse=True):
        at = {row.policy: row for row in rows if row.load == load}
        latency = {policy: Histogram() for policy in at}
        for run in runs:
            if run.load == load:
                latency[run.policy].merge(run.latency)
        if any(histogram.count for histogram in latency.values()):
            title = f"Share of requests slower than a given latency, load {formatting.load(load)}"
            drawn[load] = charts.draw(title, lambda h=latency, r=at: latency_tail(h, r, look))  # type: ignore[misc]
    if not drawn:
        return ""
    (first, svg), *others = drawn.items()
    parts = [f'<div class="card"><h3>Latency, load {_(formatting.load(first))}</h3>{_figure(svg, TAIL_CAPTION)}']
    for load, svg in others:
        parts.append(f"<details><summary>Load {_(formatting.load(load))}</summary>{_figure(svg, '')}</details>")
    return "".join([*parts, "</div>"])


# ---------------------------------------------------------------------- the table


def _table(rows: Sequence[SummaryRow], loads: Iterable[float]) -> str:
    columns: dict[str, Callable[[SummaryRow], str]] = {
        "p50": lambda row: _(formatting.seconds(row.p50)[0]),
        "p90": lambda row: _(formatting.seconds(row.p90)[0]),
        "p99": lambda row: _with_half_width(formatting.seconds(row.p99)),
        "p99.9": lambda row: _with_half_width(formatting.seconds(row.p999)),
        "mean": lambda row: _(formatting.seconds(row.mean)[0]),
    }
    if any(row.p99_to_ideal for row in rows):
        columns["p99 ÷ ideal"] = lambda row: _with_half_width(formatting.ratio(row.p99_to_ideal))
    if any(row.within_slo for row in rows):
        columns["kept promise"] = lambda row: _share(row.within_slo)
    columns["prompt"] = lambda row: _share(row.low_slowdown)
    if any(row.failed.mean for row in rows):
        columns["failed"] = lambda row: _share(row.failed)
    if any(row.refused.mean for row in rows):
        columns["refused"] = lambda row: _share(row.refused)
    columns["requests/s"] = lambda row: formatting.rate(row.throughput)
    head = "".join(f'<th scope="col">{_(name)}</th>' for name in ("policy", *columns))
    bodies = []
    for load in loads:
        group = [row for row in rows if row.load == load]
        winner, keeper = best_p99(group), best_within_slo(group)
        name = f"load {formatting.load(load)}" if load else "as recorded"
        lines = [f'<tr class="group"><th scope="rowgroup" colspan="{len(columns) + 1}">{_(name)}</th></tr>']
        for row in group:
            kind = "best" if row is winner else "reference" if is_reference(row.policy) else ""
            badge = '<span class="badge">best p99</span>' if row is winner else ""
            badge += '<span class="badge">kept most</span>' if row is keeper else ""
            cells = "".join(f"<td>{get(row)}</td>" for get in columns.values())
            lines.append(
                f'<tr class="{kind}"><th scope="row">{_(formatting.policy_label(row.policy))}{badge}</th>{cells}</tr>'
            )
        bodies.append(f"<tbody>{''.join(lines)}</tbody>")
    whole = "" if any(row.loss_share for row in rows) else '<p class="soft">No request failed or was refused.</p>'
    return (
        f'<div class="card"><h3>Results</h3>{whole}<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"{''.join(bodies)}</table></div>{_COLUMN_LEGEND}</div>"
    )


def _share(value: Estimate | None) -> str:
    return _(formatting.percent(value))


def _with_half_width(texts: tuple[str, str]) -> str:
    value, half = texts
    return f'{_(value)} <span class="half">{_(half)}</span>' if half else _(value)


_COLUMN_LEGEND = (
    "<details><summary>What the columns mean</summary><dl>"
    "<dt>p50 … p99.9</dt><dd>latency that 50 … 99.9 % of the answered requests did not exceed; mean over the seeds, "
    "± half the width of the 95 % confidence interval (of the other columns: in results.csv)</dd>"
    "<dt>p99 ÷ ideal</dt><dd>against a central queue that knows every size and speed beforehand; seed by seed</dd>"
    "<dt>kept promise</dt><dd>answered within the SLA and the deadline, of all requests</dd>"
    "<dt>prompt</dt><dd>answered within three times the request's own work, of all requests</dd>"
    "<dt>failed, refused</dt><dd>of all requests: given up after retries; turned away with a reason</dd>"
    "<dt>requests/s</dt><dd>until the last one is over, so a backlog at the end lowers it</dd>"
    "<dt>best p99</dt><dd>among the policies that served (where there is a promise: kept it for) as many requests as "
    "the one that served most, give or take 1 %: sending the hard half away makes a fine p99</dd></dl></details>"
)


def _scenario_section(scenarios: Sequence[Scenario]) -> str:
    text = "---\n".join(to_yaml(scenario, full=True) for scenario in scenarios)
    return (
        '<section><h2>What was run</h2><div class="card"><p>Save this as <code>scenario.yaml</code> and '
        "<code>steelyard simulate scenario.yaml</code> runs it again.</p>"
        f'<pre tabindex="0">{_(text)}</pre></div></section>'
    )
