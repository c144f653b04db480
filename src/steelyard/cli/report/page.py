"""A report as one self-contained HTML page. All names are escaped."""

from __future__ import annotations

from ...control.history.periods import format_span, format_time
from ...control.history.slices import VERDICTS, count_verdict
from ...control.history.summary import QUANTILES, ModelSummary, ReportRow, Summary
from ...simulate.report.html import card, document, escape, figure, row, table
from . import charts, text

TITLE = "SLOs and how they were met"


def report_page(summary: Summary, now: float) -> str:
    body = [_model(model, summary) for model in summary.models] or ["<p>Nothing was counted in this period.</p>"]
    return document(
        TITLE,
        brand="Steelyard",
        header=f'<p class="soft">{escape(text.heading(summary))}</p>{_gaps(summary)}',
        body=body,
        footer=f"<code>steelyard report</code>, {format_time(now)} UTC. What is the client's fault counts against no "
        "SLO. Latency is of answered requests, at most 1 % off. All times are UTC.",
    )


def _gaps(summary: Summary) -> str:
    lines = text.gap_lines(summary)
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line.strip())}</li>" for line in lines[1:])
    return f'<div class="warning"><p>{escape(lines[0])}</p><ul>{items}</ul></div>'


def _model(model: ModelSummary, summary: Summary) -> str:
    rows, latency = text.model_rows(model), ", ".join(text.latency_texts(model))
    intro = f'<p class="soft">Latency: {latency}</p>' if latency else ""
    cards = _objectives(rows) + _counts(rows, summary) + f'<div class="card">{_figures(model, summary)}</div>'
    return f"<section><h2>{escape(text.safe_name(model.name))}</h2>{intro}{cards}</section>"


def _objectives(rows: list[ReportRow]) -> str:
    body = []
    for one in rows:
        for objective in one.objectives:
            look = {True: "met", False: "violated", None: "soft"}[objective.met]
            cells = [
                f'<td class="words">{escape(objective.words)}</td>',
                f'<td class="{look}">{text.verdict_text(objective)}</td>',
                text.percent(objective.attained),
                escape(text.budget_text(objective)),
            ]
            body.append(row(escape(text.tenant_name(one.tenant)), cells))
    if not body:
        return '<div class="card"><p>No SLO.</p></div>'
    columns = ("tenant", "objective", "", "attained", "error budget")
    return card("SLOs", table(columns, body, label="SLOs"))


def _counts(rows: list[ReportRow], summary: Summary) -> str:
    body = []
    for one in rows:
        worst = text.worst_text(one, summary, ": ")
        numbers = (f"{count_verdict(one.counts, verdict):,}" for verdict in VERDICTS)
        faults = f'<td class="words">{escape(text.fault_counts(one))}</td>'
        body.append(row(escape(text.tenant_name(one.tenant)), [f"{one.requests:,}", *numbers, faults, worst]))
    columns = ("tenant", "requests", *VERDICTS, "fault", text.worst_title(summary))
    return card("Requests", table(columns, body, label="Requests"))


def _figures(model: ModelSummary, summary: Summary) -> str:
    step = format_span(summary.step)
    what = "answered in time" if model.timed else "answered at all"
    quantiles = _key([(f"p{q * 100:g}", number) for number, q in enumerate(QUANTILES)])
    colours = _key([(name, charts.SERIES_BY_VERDICT[name]) for name in VERDICTS])
    shares = f"Share of requests {what}, {step} each; no bar: none came, or not known."
    figures = (
        (charts.attainment(model, summary), shares),
        (charts.latency(model, summary), f"Latency of answered requests.{quantiles}"),
        (charts.verdicts(model, summary), f"Requests by SLO verdict, {step} each.{colours}"),
    )
    return "".join(figure(chart, words) for chart, words in figures if chart)


def _key(names: list[tuple[str, int]]) -> str:
    return "".join(
        f'<span class="key" style="background: var(--series-{colour})"></span>{name}' for name, colour in names
    )
