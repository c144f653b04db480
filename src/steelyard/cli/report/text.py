"""A report in a terminal. Tenants' names come from clients: terminal codes and formulas are removed."""

from __future__ import annotations

from math import ceil, isinf, isnan

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...control.history.periods import format_span, format_time
from ...control.history.slices import HOUR_SECONDS, MINUTE_SECONDS, VERDICTS, add_counts, count_verdict
from ...control.history.summary import QUANTILES, ModelSummary, ObjectiveSummary, ReportRow, Summary, good_and_bad
from ...core.slo.verdicts import ABANDONED, LATE, MET, OTHER_TENANTS
from ...units import format_seconds

MAX_NAME_CHARS = 80
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe_name(name: str) -> str:
    """One line without terminal codes."""
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text if len(text) <= MAX_NAME_CHARS else f"{text[: MAX_NAME_CHARS - 1]}…"


def tenant_name(tenant: str | None) -> str:
    if tenant is None:
        return "all"
    return "(all others)" if tenant == OTHER_TENANTS else safe_name(tenant) or "(none named)"


def safe_cell(name: str) -> str:
    """For a spreadsheet: a formula gets a quote in front."""
    return f"'{name}" if name.startswith(_FORMULA_PREFIXES) else name


def safe_text(text: str) -> str:
    """Several lines without terminal codes."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


# Nines count, so the steps are not even.
BAR_BY_PERCENT = (
    (100.0, "█"),
    (99.9, "▇"),
    (99.0, "▆"),
    (95.0, "▅"),
    (90.0, "▄"),
    (75.0, "▃"),
    (50.0, "▂"),
    (0.0, "▁"),
)
NO_REQUESTS_MARK, NOT_RUNNING_MARK = "·", "░"
MAX_GAPS_SHOWN = 10


def print_report(console: Console, summary: Summary) -> None:
    console.print(Text(heading(summary), style="bold"))
    for line in gap_lines(summary):
        console.print(Text(line, style="yellow"))
    if not summary.models:
        console.print(Text("Nothing was counted in this period."))
    for model in summary.models:
        console.print()
        _show_model(console, model, summary)


def heading(summary: Summary) -> str:
    whole = (summary.until // MINUTE_SECONDS - summary.since // MINUTE_SECONDS) * MINUTE_SECONDS
    return f"{format_time(summary.since)} to {format_time(summary.until)} UTC ({format_span(whole)})"


def gap_lines(summary: Summary) -> list[str]:
    if not summary.gaps:
        return []
    total = sum(minutes for *_, minutes in summary.gaps) * 60
    first = summary.gaps[0]
    lines = []
    if first[0] <= summary.since and first[1] < summary.until and first[2] * 60 == first[1] - first[0]:
        lines += [f"Known since {format_time(first[1])} UTC ({format_span(summary.until - first[1])})."]
    lines += [f"For {format_span(total)} of this nothing is known: no gateway with this history ran then."]
    for start, end, minutes in summary.gaps[:MAX_GAPS_SHOWN]:
        part = "" if minutes * 60 == end - start else f", {format_span(minutes * 60)} of it"
        lines.append(f"  {format_time(start)} to {format_time(end)}{part or f' ({format_span(end - start)})'}")
    if len(summary.gaps) > MAX_GAPS_SHOWN:
        lines.append(f"  and {len(summary.gaps) - MAX_GAPS_SHOWN} more")
    return lines


def _show_model(console: Console, model: ModelSummary, summary: Summary) -> None:
    title = Text(safe_name(model.name), style="bold cyan")
    if latency := latency_texts(model):
        title.append(f"  {'  '.join(latency)}", style="not bold default")
    console.print(title)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("tenant", "requests", *VERDICTS):
        table.add_column(name, justify="left" if name == "tenant" else "right")
    table.add_column("fault", overflow="fold")
    table.add_column(worst_title(summary))
    for row in model_rows(model):
        worst = worst_text(row, summary, "  ")
        numbers = [f"{count_verdict(row.counts, verdict):,}" for verdict in VERDICTS]
        table.add_row(Text(tenant_name(row.tenant)), f"{row.requests:,}", *numbers, fault_counts(row), worst)
    console.print(table)
    _show_objectives(console, model)
    console.print(_bar(model, summary, console.width))


def latency_texts(model: ModelSummary) -> list[str]:
    """Empty if nothing was answered."""
    pairs = zip(QUANTILES, model.quantiles, strict=True)
    return [f"p{q * 100:g} {format_seconds(seconds)}" for q, seconds in pairs if not isnan(seconds)]


def worst_title(summary: Summary) -> str:
    return "worst hour" if summary.worst_step == HOUR_SECONDS else "worst day"


def worst_text(row: ReportRow, summary: Summary, between: str) -> str:
    if row.worst is None:
        return "–"
    return f"{format_time(row.worst[0], summary.worst_step == HOUR_SECONDS)}{between}{percent(row.worst[1])}"


def model_rows(model: ModelSummary) -> list[ReportRow]:
    return model.tenants if len(model.tenants) == 1 else [model.whole, *model.tenants]


def _show_objectives(console: Console, model: ModelSummary) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for row in model_rows(model):
        for objective in row.objectives:
            style = {True: "green", False: "bold red", None: "dim"}[objective.met]
            table.add_row(
                Text(tenant_name(row.tenant)),
                objective.words,
                Text(verdict_text(objective), style=style),
                percent(objective.attained),
                budget_text(objective),
            )
    console.print(table if table.row_count else Text("no SLO", style="dim"))


def _bar(model: ModelSummary, summary: Summary, room: int) -> Text:
    """A sign a step, or several steps, for the share of good requests."""
    first = int(summary.chart_start // summary.step * summary.step)
    starts = range(first, int(summary.until), summary.step)
    wide = summary.step * max(1, ceil(len(starts) / max(1, room)))
    counts: dict[int, dict[str, int]] = {}
    for step in model.steps:
        place = first + (step.start - first) // wide * wide
        counts[place] = add_counts(counts.get(place, {}), step.counts)
    bar = Text()
    for start in range(first, int(summary.until), wide):
        good, bad = good_and_bad(counts.get(start, {}), model.timed)
        if not good + bad:
            bar.append(NO_REQUESTS_MARK if start in counts else NOT_RUNNING_MARK, style="dim")
            continue
        share = 100.0 * good / (good + bad)
        sign = next(sign for least, sign in BAR_BY_PERCENT if share >= least)
        bar.append(sign, style="red" if share < 99.0 else "green")
    what = "in time" if model.timed else "answered"
    bar.append(f"  {what}, {format_span(wide)} each (█ all, ▆ 99 %, ▄ 90 %, · none came, ░ did not run)", style="dim")
    return bar


def verdict_text(objective: ObjectiveSummary) -> str:
    return {True: "met", False: "VIOLATED", None: "no requests"}[objective.met]


def budget_text(objective: ObjectiveSummary) -> str:
    if objective.met is None:
        return ""
    if isinf(objective.budget_used):
        return "nothing was allowed to fail"
    return f"{100 * objective.budget_used:,.1f} % of the error budget used"


def fault_counts(row: ReportRow) -> str:
    """`late: replica 3, overload 1; failed: replica 2; refused: overload (first-byte deadline) 4`."""
    parts: dict[str, list[str]] = {}
    for name, count in sorted(row.counts.items()):
        kind, _, fault = name.partition("/")
        if kind not in (MET, ABANDONED) and count:
            party, _, deadline = fault.partition("/")
            reason = f" ({deadline.replace('_', '-')} deadline)" if deadline else ""
            parts.setdefault(kind, []).append(f"{party}{reason} {count:,}")
    order = sorted(parts, key=lambda kind: (kind != LATE, kind))
    return "; ".join(f"{kind}: {', '.join(parts[kind])}" for kind in order) or "–"


def percent(value: float) -> str:
    """Cut off, so that a missed target is never rounded up to a met one."""
    if isnan(value):
        return "–"
    return f"{int(value * 1000 + 1e-6) / 1000:g} %" if value < 1000 else f"{value:,.0f} %"
