"""What the demo shows: a live table, or lines in a file; at the end each step in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..control.observability.totals import UNKNOWN_STATE, FleetStatus, ModelTotals, ReplicaTotals
from ..units import format_seconds
from .corpus import MODEL_NAME
from .replica_processes import SLOWDOWNS, ReplicaProcess
from .steps import StepResult, merge_rounds
from .traffic import RECENT_SECONDS, TrafficStats

BAR_COLUMNS = 8
LEGEND = f"p50, p99: last {RECENT_SECONDS:g} s · share: in this step · speed: learned, median 1"
_COLOURS = {"ready": "green", "ejected": "red", "unreachable": "red", UNKNOWN_STATE: "dim"}  # yellow: all that passes


def live(status: FleetStatus, stats: TrafficStats, part: TrafficStats, now: float, step: str) -> RenderableType:
    recent, model = stats.recent(now), _model(status)
    numbers = table([], ["requests", "a second", "p50", "p99", "waiting", "failed"])
    numbers.add_row(
        f"{stats.requests:,}",
        f"{recent.rate:.0f}",
        format_seconds(recent.p50),
        format_seconds(recent.p99),
        str(model.waiting),
        _count(stats.failures),
    )
    return Group(
        Text(f"\n▶ {step}", style="bold"), Text(), numbers, Text(), _replicas(status, part), Text(LEGEND, style="dim")
    )


def _replicas(status: FleetStatus, part: TrafficStats) -> Table:
    rows = table(["replica", "state"], ["requests", "share", "", "in flight", "work", "speed", "failed"])
    rows.columns[4].width, rows.columns[4].justify = BAR_COLUMNS, "left"
    for seen in _shown(status):
        share = part.share(seen.id)
        rows.add_row(
            Text(seen.id, style="bold"),
            Text(seen.state, style=_COLOURS.get(seen.state, "yellow")),
            f"{part.answered[seen.id]:,}",
            f"{100 * share:.0f} %",
            Text("█" * round(BAR_COLUMNS * share), style="cyan"),
            str(seen.in_flight),
            format_seconds(seen.work) if seen.work else "0 s",
            f"{1.0 / seen.slowness:.2f}×",
            _count(seen.failures),
        )
    return rows


def line(status: FleetStatus, stats: TrafficStats, part: TrafficStats, now: float) -> str:
    """For a file or a pipe."""
    recent = stats.recent(now)
    shares = ", ".join(f"{seen.id} {100 * part.share(seen.id):.0f} %" for seen in _shown(status))
    return (
        f"{now - stats.began:5.1f} s: {stats.requests} requests, {recent.rate:.0f}/s, "
        f"p50 {format_seconds(recent.p50)}, p99 {format_seconds(recent.p99)}, "
        f"waiting {_model(status).waiting}, failed {stats.failures}; {shares}"
    )


def announcement(outcome: StepResult, since: float) -> RenderableType:
    """Of a step that begins, or that has ended with a note."""
    if outcome.note:
        return Text(f"         → {outcome.note}", style="green" if not outcome.stats.failures else "red")
    return Text.assemble(
        (f"\n{since:5.0f} s  ", "dim"), (outcome.step.title, "bold"), f"\n         watch {outcome.step.watch}"
    )


def introduction(url: str, fleet: Iterable[ReplicaProcess], rate: float, load: float) -> RenderableType:
    rows = table()
    rows.show_header = False
    for replica in fleet:
        how = f"an answer takes {replica.slowdown / SLOWDOWNS['fast']:g}×"
        rows.add_row(Text(replica.name, style="bold"), replica.url, f"pid {replica.pid}", how)
    return Group(
        Text(f"\ngateway {url}, in front of replicas of unequal speed:"),
        rows,
        Text(f"traffic: {rate:.0f} requests a second, {100 * load:.0f} % of what they were measured to do"),
    )


def table(words: Iterable[str] = (), numbers: Iterable[str] = ()) -> Table:
    made = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in words:
        made.add_column(name, no_wrap=True)
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def _shown(status: FleetStatus) -> list[ReplicaTotals]:
    """Ours first, then those that the gateway has started."""
    ours = list(SLOWDOWNS)
    found = [seen for seen in status.replicas.values() if seen.model == MODEL_NAME]
    return sorted(found, key=lambda seen: (ours.index(seen.id) if seen.id in ours else len(ours), seen.id))


def _model(status: FleetStatus) -> ModelTotals:
    return status.models[MODEL_NAME]


def _count(failures: int) -> Text:
    return Text(f"{failures:,}", style="red" if failures else "")


NOTE_COLUMNS = 62  # columns; the whole table fits into 100
NEXT_STEPS = {
    "steelyard demo --no-tour": "only replicas, gateway and traffic, until Ctrl-C",
    "steelyard serve --help": "the gateway in front of replicas of your own",
}


def summary(
    outcomes: Sequence[StepResult], comparison: str, stats: TrafficStats, seconds: float, policy: str
) -> RenderableType:
    last = "" if outcomes else f", at the end with {policy}"
    said = Text(
        f"{stats.requests:,} requests in {seconds:.1f} s{last}: {stats.failures} failed, "
        f"p50 {format_seconds(stats.latency.quantile(0.5))}, p99 {format_seconds(stats.latency.quantile(0.99))}",
        style="bold",
    )
    problems = [Text(f"{count} failed: {what}", style="red") for what, count in stats.failed.most_common(5)]
    result = [Text(f"\n{comparison}", style="bold")] if comparison else []
    return Group(Text(), said, *problems, Text(), _steps(outcomes, comparison) if outcomes else _shares(stats), *result)


def _steps(outcomes: Sequence[StepResult], comparison: str) -> RenderableType:
    rows = table(["step"], ["requests", "failed", "p50", "p99"])
    rows.columns[0].max_width, rows.columns[0].no_wrap = NOTE_COLUMNS, False
    for outcome in merge_rounds(outcomes).values():
        stats = outcome.stats
        rows.add_row(
            Group(Text(outcome.step.title), *_note(outcome, comparison)),
            f"{stats.requests:,}",
            f"{stats.failures:,}",
            format_seconds(stats.latency.quantile(0.5)),
            format_seconds(stats.latency.quantile(0.99)),
        )
    return rows


def _note(outcome: StepResult, comparison: str) -> Iterator[RenderableType]:
    note = outcome.note or "cut short"
    if note != comparison:
        yield Padding(Text(note, style="dim"), (0, 0, 0, 2))


def _shares(stats: TrafficStats) -> RenderableType:
    rows = table(["replica"], ["requests", "share"])
    for name in sorted(stats.answered):
        rows.add_row(name, f"{stats.answered[name]:,}", f"{100 * stats.share(name):.1f} %")
    return rows
