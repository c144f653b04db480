"""A report as one HTML page that needs nothing else: light or dark, on paper too. All names are escaped."""

from __future__ import annotations

from html import escape
from math import isnan

from ...control.history.periods import format_span, format_time
from ...control.history.slices import HOUR_SECONDS, VERDICTS, count_verdict
from ...control.history.summary import QUANTILES, ModelSummary, Summary, SummaryRow
from ...simulate.report.style import PAGE_STYLE
from ...units import format_seconds
from . import charts as charts
from .text import budget_text, fault_counts, gap_lines, heading, percent, safe_name, tenant_name, verdict_text

REPORT_STYLE = """
figure svg text { fill: var(--soft); font-size: 10px; }
.grid { stroke: var(--faint); stroke-width: 1; }
.kept { color: var(--series-2); font-weight: 650; }
.broken { color: var(--series-9); font-weight: 650; }
.key { display: inline-block; width: 0.8em; height: 0.8em; border-radius: 2px; margin: 0 0.3em 0 0.9em; }
td.words { text-align: left; white-space: normal; }
figure + figure { margin-top: 1.25rem; }
@media print { :root { color-scheme: light; } section { break-inside: avoid-page; } figure svg { min-width: 0; } }
"""


def report_page(summary: Summary, now: float) -> str:
    title = f"Promises and how they were kept, {heading(summary)}"
    body = "".join(_model(model, summary) for model in summary.models) or "<p>Nothing was counted in this period.</p>"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>{PAGE_STYLE}{REPORT_STYLE}</style>
</head>
<body>
<header>
<p class="brand">Steelyard</p>
<h1>Promises and how they were kept</h1>
<p class="soft">{escape(heading(summary))}</p>
{_gaps(summary)}
</header>
<main>
{body}
</main>
<footer><p>Made by <code>steelyard report</code>, {format_time(now)} UTC. What is the client's fault counts against no
promise. Latency is of answered requests, at most 1 % off. All times are UTC.</p></footer>
</body>
</html>
"""


def _gaps(summary: Summary) -> str:
    lines = gap_lines(summary)
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line.strip())}</li>" for line in lines[1:])
    return f'<div class="warning"><p>{escape(lines[0])}</p><ul>{items}</ul></div>'


def _model(model: ModelSummary, summary: Summary) -> str:
    rows = model.tenants if len(model.tenants) == 1 else [model.whole, *model.tenants]
    latency = ", ".join(f"p{q * 100:g} {format_seconds(s)}" for q, s in zip(QUANTILES, model.quantiles, strict=True))
    told = "" if isnan(model.quantiles[0]) else f'<p class="soft">Latency: {latency}</p>'
    return f"""<section>
<h2>{escape(safe_name(model.name))}</h2>
{told}
<div class="card">{_objectives(rows)}</div>
<div class="card">{_counts(rows, summary)}</div>
<div class="card">{_figures(model, summary)}</div>
</section>
"""


def _objectives(rows: list[SummaryRow]) -> str:
    body = ""
    for row in rows:
        for objective in row.objectives:
            look = {True: "kept", False: "broken", None: "soft"}[objective.kept]
            body += (
                f'<tr><th scope="row">{escape(tenant_name(row.tenant))}</th><td class="words">{escape(objective.words)}'
                f'</td><td class="{look}">{verdict_text(objective)}</td><td>{percent(objective.attained)}</td>'
                f"<td>{escape(budget_text(objective))}</td></tr>"
            )
    if not body:
        return "<p>Nothing was promised.</p>"
    return _table("Promises", ("tenant", "promised", "", "attained", "error budget"), body)


def _counts(rows: list[SummaryRow], summary: Summary) -> str:
    body = ""
    for row in rows:
        precise = summary.worst_step == HOUR_SECONDS
        worst = f"{format_time(row.worst[0], precise)}: {percent(row.worst[1])}" if row.worst else "–"
        numbers = "".join(f"<td>{count_verdict(row.counts, verdict):,}</td>" for verdict in VERDICTS)
        body += (
            f'<tr><th scope="row">{escape(tenant_name(row.tenant))}</th><td>{row.requests:,}</td>{numbers}'
            f'<td class="words">{escape(fault_counts(row))}</td><td>{worst}</td></tr>'
        )
    worst_name = "worst hour" if summary.worst_step == HOUR_SECONDS else "worst day"
    return _table("Requests", ("tenant", "requests", *VERDICTS, "whose fault", worst_name), body)


def _table(caption: str, columns: tuple[str, ...], body: str) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    return (
        f'<h3>{caption}</h3><div class="scroll"><table aria-label="{caption}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _figures(model: ModelSummary, summary: Summary) -> str:
    step = format_span(summary.step)
    what = "answered in time" if model.timed else "answered at all"
    quantiles = _key([(f"p{q * 100:g}", number) for number, q in enumerate(QUANTILES)])
    colours = _key([(name, charts.SERIES_BY_VERDICT[name]) for name in VERDICTS])
    told = (
        (
            charts.attainment(model, summary),
            f"Share of requests {what}, {step} each; no bar: none came, or not known.",
        ),
        (charts.latency(model, summary), f"Latency of answered requests.{quantiles}"),
        (charts.verdicts(model, summary), f"Requests by how they stand to what was promised, {step} each.{colours}"),
    )
    return "".join(
        f'<figure><div class="scroll">{chart}</div><figcaption>{words}</figcaption></figure>'
        for chart, words in told
        if chart
    )


def _key(names: list[tuple[str, int]]) -> str:
    return "".join(
        f'<span class="key" style="background: var(--series-{colour})"></span>{name}' for name, colour in names
    )
