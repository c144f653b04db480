"""The report of a simulation: one self-contained HTML file, the same bytes for the same results."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from ...core.statistics.histogram import Histogram
from ..engine.result import RunResult
from ..run import is_reference
from ..scenario.file import to_yaml
from ..scenario.schema import Scenario
from . import formatting
from .charts import SeriesStyle, latency_tail, p99_by_load, series_styles
from .findings import describe, policy_finding, warnings
from .heatmaps import fault_times, share_table, timelines
from .html import badge, card, definitions, document, escape, figure, group_row, row, table, with_half_width
from .scaling_section import best_scaler, scaling_section
from .summary import (
    COLUMNS,
    POLICY_COLUMNS,
    SummaryRow,
    best_p99,
    best_within_slo,
    meanings_of,
    scenarios_with_slo,
    shown_columns,
    summarise,
)

FOOTER = (
    "The same scenario and seeds give the same numbers, whatever the machine; simulated time is not the time it took."
)
TAIL_CAPTION = (
    "Follow a line down: where it meets the row p99, one request in a hundred takes longer than the time below. Lines "
    "further to the left are faster. The lines are of all seeds together; the list, best first, has the mean of the "
    "seeds' p99, as the table."
)
LOAD_CAPTION = (
    "Lower is better, and a line that stays flat as load grows keeps its latency when it is busy. The band is the 95 % "
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
BEST_P99_MEANING = (
    "among the policies that answered (with an SLO: answered within it) as many requests as the one that answered "
    "most, give or take 1 %: sending the hard half away makes a fine p99"
)


def render(scenarios: Sequence[Scenario], results: Sequence[RunResult]) -> str:
    look = series_styles(list(dict.fromkeys(run.policy for run in results)))
    alone = len(scenarios) == 1
    sections, overview = [], []
    for number, scenario in enumerate(scenarios, start=1):
        runs = [run for run in results if run.scenario == scenario.name]
        rows = summarise(runs, scenarios_with_slo([scenario]))
        overview.append(_overview_row(number, scenario, rows))
        scaled = scenario.autoscale is not None
        parts = scaling_section(runs, rows) if scaled else _section(scenario, runs, rows, look)
        heading = f'<section id="s{number}"><h2>{"Findings" if alone else escape(scenario.name)}</h2>'
        about = f'<p class="soft">{escape(describe(scenario))}</p>'
        notes = (f'<p class="warning">{escape(text)}</p>' for text in warnings(scenario, runs))
        finding, *cards = parts
        sections += [heading, about, f'<p class="finding">{escape(finding)}</p>', *notes, *cards, "</section>"]
    return document(
        scenarios[0].name if alone else f"{len(scenarios)} scenarios",
        brand="Steelyard simulation",
        header=_run_counts(results),
        body=[*([] if alone else [_overview(overview)]), *sections, _scenario_section(scenarios)],
        footer=FOOTER,
    )


def _run_counts(results: Sequence[RunResult]) -> str:
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


def _overview(rows: Sequence[str]) -> str:
    names = ("scenario", "load", "best p99", "p99", "p99 ÷ ideal")
    return f'<nav class="card" aria-label="Scenarios"><h2>At the highest load</h2>{table(names, rows)}</nav>'


def _overview_row(number: int, scenario: Scenario, rows: Sequence[SummaryRow]) -> str:
    highest = max(one.load for one in rows)
    at = [one for one in rows if one.load == highest]
    scaled = scenario.autoscale is not None
    best = best_scaler(at) if scaled else best_p99(at)
    name = formatting.DASH if best is None else f"{best.scaler} (best SLO)" if scaled else best.policy
    cells = [escape(formatting.load_in_replicas(highest) if scaled else formatting.load(highest)), escape(name)]
    cells += [with_half_width(best.cell(name)) for name in ("p99", "p99_to_ideal")] if best else ["", ""]
    return row(f'<a href="#s{number}">{escape(scenario.name)}</a>', cells)


def _section(
    scenario: Scenario, runs: Sequence[RunResult], rows: Sequence[SummaryRow], look: dict[str, SeriesStyle]
) -> list[str]:
    """The finding, then cards."""
    loads = list(dict.fromkeys(one.load for one in rows))
    highest = max(loads)
    shown = [run for run in runs if run.load == highest and run.seed == runs[0].seed and run.timeline.times]
    parts = [policy_finding(rows, runs), _table(rows, loads), _tails(runs, rows, loads, look)]
    above_zero = [one for one in rows if one.load and not isnan(one.p99.mean)]
    if len({one.load for one in above_zero}) > 1:
        svg = p99_by_load(above_zero, look).svg("p99 latency of each policy against load")
        parts.append(card("p99 against load", figure(svg, escape(LOAD_CAPTION))))
    if shown:
        at = f"at load {formatting.load(highest)}" if highest else "as recorded"
        moments = fault_times(scenario, shown[0].timeline.times[-1])
        faults = " Dashed lines: when a fault began and ended." if moments else ""
        more = f" The first {len(shown[0].timeline.load)} replicas." if len(shown[0].timeline.load) == 64 else ""
        drawing = timelines({run.policy: run.timeline for run in shown}, moments)
        svg = drawing.svg(f"Requests on each replica over time, {at}")
        parts.append(card(f"Replicas over time, {at}", figure(svg, escape(TIMELINE_CAPTION + more + faults))))
        svg = share_table(shown, scenario).svg(f"Share of requests each replica served, {at}")
        parts.append(card(f"Requests served by each replica, {at}", figure(svg, escape(SHARE_CAPTION))))
    return parts


def _tails(
    runs: Sequence[RunResult], rows: Sequence[SummaryRow], loads: Sequence[float], look: dict[str, SeriesStyle]
) -> str:
    """The highest load in full view, the others one click away."""
    drawn: dict[float, str] = {}
    for load in sorted(loads, reverse=True):
        p99 = {one.policy: one.p99.mean for one in rows if one.load == load}
        latency = {policy: Histogram() for policy in p99}
        for run in runs:
            if run.load == load:
                latency[run.policy].merge(run.latency)
        if any(histogram.count for histogram in latency.values()):
            title = f"Share of requests slower than a given latency, load {formatting.load(load)}"
            drawn[load] = latency_tail(latency, p99, look).svg(title)
    if not drawn:
        return ""
    (first, svg), *others = drawn.items()
    more = (
        f"<details><summary>Load {escape(formatting.load(load))}</summary>{figure(svg, '')}</details>"
        for load, svg in others
    )
    return card(f"Latency, load {formatting.load(first)}", figure(svg, escape(TAIL_CAPTION)), *more)


def _table(rows: Sequence[SummaryRow], loads: Sequence[float]) -> str:
    names = shown_columns(POLICY_COLUMNS, rows)
    bodies = []
    for load in loads:
        group = [one for one in rows if one.load == load]
        winner, best_slo = best_p99(group), best_within_slo(group)
        lines = [group_row(f"load {formatting.load(load)}" if load else "as recorded", len(names) + 1)]
        for one in group:
            kind = "best" if one is winner else "reference" if is_reference(one.policy) else ""
            badges = badge("best p99") * (one is winner) + badge("best SLO") * (one is best_slo)
            cells = (with_half_width(one.cell(name)) for name in names)
            lines.append(row(escape(formatting.policy_label(one.policy)) + badges, cells, kind))
        bodies.append(lines)
    whole = "" if any(one.loss_share for one in rows) else '<p class="soft">No request failed or was refused.</p>'
    meanings = definitions(meanings_of(names) | {"best p99": BEST_P99_MEANING})
    return card("Results", whole, table(["policy", *(COLUMNS[name].title for name in names)], *bodies), meanings)


def _scenario_section(scenarios: Sequence[Scenario]) -> str:
    text = "---\n".join(to_yaml(scenario, full=True) for scenario in scenarios)
    return (
        '<section><h2>What was run</h2><div class="card"><p>Save this as <code>scenario.yaml</code> and '
        "<code>steelyard simulate scenario.yaml</code> runs it again.</p>"
        f'<pre tabindex="0">{escape(text)}</pre></div></section>'
    )
