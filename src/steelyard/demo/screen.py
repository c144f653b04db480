"""What the demo shows while it runs: a live table for people, a line now and then for a file."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..control.observability.totals import UNKNOWN_STATE, FleetStatus, ModelTotals, ReplicaTotals
from ..units import format_seconds
from .corpus import MODEL_NAME
from .replica_processes import SLOWDOWNS, ReplicaProcess
from .steps import StepResult
from .traffic_stats import RECENT_SECONDS, TrafficStats

BAR_COLUMNS = 8  # columns of the whole
LEGEND = f"p50, p99: last {RECENT_SECONDS:g} s · share: in this step · speed: learned, median 1"
_COLOURS = {"ready": "green", "ejected": "red", "unreachable": "red", UNKNOWN_STATE: "dim"}  # yellow: all that passes


def live(status: FleetStatus, tally: TrafficStats, part: TrafficStats, now: float, step: str) -> RenderableType:
    recent, model = tally.recent(now), _model(status)
    numbers = table()
    for name in ("requests", "a second", "p50", "p99", "waiting", "failed"):
        numbers.add_column(name, justify="right", no_wrap=True)
    numbers.add_row(
        f"{tally.requests:,}",
        f"{recent.rate:.0f}",
        format_seconds(recent.p50),
        format_seconds(recent.p99),
        str(model.waiting),
        _count(tally.failures),
    )
    return Group(
        Text(f"\n▶ {step}", style="bold"), Text(), numbers, Text(), _replicas(status, part), Text(LEGEND, style="dim")
    )


def _replicas(status: FleetStatus, part: TrafficStats) -> Table:
    rows = table()
    rows.add_column("replica", no_wrap=True)
    rows.add_column("state", no_wrap=True)
    for name in ("requests", "share"):
        rows.add_column(name, justify="right", no_wrap=True)
    rows.add_column("", width=BAR_COLUMNS, no_wrap=True)
    for name in ("in flight", "work", "speed", "failed"):
        rows.add_column(name, justify="right", no_wrap=True)
    for seen in _shown(status):
        share = part.share(seen.id)
        rows.add_row(
            Text(seen.id, style="bold"),
            Text(seen.state, style=_COLOURS.get(seen.state, "yellow")),
            f"{part.answered[seen.id]:,}",
            f"{100 * share:.0f} %",
            Text("█" * round(BAR_COLUMNS * share), style="cyan"),
            str(seen.in_flight),
            format_seconds(seen.estimated_work) if seen.estimated_work else "0 s",
            f"{1.0 / seen.slowness:.2f}×",
            _count(seen.failures),
        )
    return rows


def line(status: FleetStatus, tally: TrafficStats, part: TrafficStats, now: float) -> str:
    """All that matters, where there is no screen to draw on."""
    recent = tally.recent(now)
    shares = ", ".join(f"{seen.id} {100 * part.share(seen.id):.0f} %" for seen in _shown(status))
    return (
        f"{now - tally.began:5.1f} s: {tally.requests} requests, {recent.rate:.0f}/s, "
        f"p50 {format_seconds(recent.p50)}, p99 {format_seconds(recent.p99)}, "
        f"waiting {_model(status).waiting}, failed {tally.failures}; {shares}"
    )


def announcement(outcome: StepResult, since: float) -> RenderableType:
    """Of a step that begins, or has ended and has a note."""
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


def table() -> Table:
    return Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))


def _shown(status: FleetStatus) -> list[ReplicaTotals]:
    """Ours first, then those that the gateway has started."""
    ours = list(SLOWDOWNS)
    found = [seen for seen in status.replicas.values() if seen.model == MODEL_NAME]
    return sorted(found, key=lambda seen: (ours.index(seen.id) if seen.id in ours else len(ours), seen.id))


def _model(status: FleetStatus) -> ModelTotals:
    return status.models[MODEL_NAME]


def _count(failures: int) -> Text:
    return Text(f"{failures:,}", style="red" if failures else "")
