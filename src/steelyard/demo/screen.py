"""What the demo shows: a live table for people, a line now and then for a file, and a summary at the end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..control.status import UNKNOWN, FleetStatus, ModelStatus
from ..units import show_seconds
from .corpus import MODEL
from .fleet import ReplicaProcess
from .tally import Tally

BAR = 8  # columns of the whole
MEANING = "p50, p99: last 10 s · work: estimated, before it · speed: as learned, median 1"
_COLOURS = {"ready": "green", "ejected": "red", "unreachable": "red", UNKNOWN: "dim"}  # yellow: all that passes


def live(fleet: Sequence[ReplicaProcess], status: FleetStatus, tally: Tally, now: float) -> RenderableType:
    recent, model = tally.recent(now), _model(status)
    numbers = _table()
    for name in ("requests", "a second", "p50", "p99", "waiting", "failed"):
        numbers.add_column(name, justify="right", no_wrap=True)
    numbers.add_row(
        f"{tally.requests:,}",
        f"{recent.rate:.0f}",
        show_seconds(recent.p50),
        show_seconds(recent.p99),
        str(model.waiting),
        _count(tally.failures),
    )
    return Group(Text(), numbers, Text(), _replicas(fleet, status, tally), Text(MEANING, style="dim"))


def _replicas(fleet: Sequence[ReplicaProcess], status: FleetStatus, tally: Tally) -> Table:
    table = _table()
    table.add_column("replica", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("requests", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", width=BAR, no_wrap=True)
    for name in ("in flight", "work", "speed", "failed"):
        table.add_column(name, justify="right", no_wrap=True)
    for replica in fleet:
        seen = status.replicas[MODEL, replica.name]
        share = tally.share(replica.name)
        table.add_row(
            Text(replica.name, style="bold"),
            Text(seen.state, style=_COLOURS.get(seen.state, "yellow")),
            f"{tally.answered[replica.name]:,}",
            f"{100 * share:.0f} %",
            Text("█" * round(BAR * share), style="cyan"),
            str(seen.in_flight),
            show_seconds(seen.seconds) if seen.seconds else "0 s",
            f"{1.0 / seen.slowness:.2f}×",
            _count(seen.failures),
        )
    return table


def line(fleet: Sequence[ReplicaProcess], status: FleetStatus, tally: Tally, now: float) -> str:
    """All that matters, where there is no screen to draw on."""
    recent = tally.recent(now)
    shares = ", ".join(f"{replica.name} {100 * tally.share(replica.name):.0f} %" for replica in fleet)
    return (
        f"{now - tally.began:5.1f} s: {tally.requests} requests, {recent.rate:.0f}/s, "
        f"p50 {show_seconds(recent.p50)}, p99 {show_seconds(recent.p99)}, "
        f"waiting {_model(status).waiting}, failed {tally.failures}; {shares}"
    )


def summary(fleet: Sequence[ReplicaProcess], tally: Tally, seconds: float, policy: str) -> RenderableType:
    table = _table()
    table.add_column("replica")
    for name in ("its work takes", "requests", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    for replica in fleet:
        share = f"{100 * tally.share(replica.name):.1f} %"
        table.add_row(replica.name, f"{replica.passes}×", f"{tally.answered[replica.name]:,}", share)
    said = Text(
        f"{tally.requests:,} requests in {seconds:.1f} s with {policy}, {tally.requests / seconds:.0f} a second: "
        f"{tally.failures} failed, "
        f"p50 {show_seconds(tally.latency.quantile(0.5))}, p99 {show_seconds(tally.latency.quantile(0.99))}",
        style="bold",
    )
    problems = [Text(f"{count} failed: {what}", style="red") for what, count in tally.failed.most_common(5)]
    return Group(Text(), said, *problems, Text(), table)


def introduction(url: str, policy: str, fleet: Sequence[ReplicaProcess], rate: float, load: float) -> RenderableType:
    table = _table()
    table.show_header = False
    for replica in fleet:
        work = "works once" if replica.passes == 1 else f"does all work {replica.passes} times"
        table.add_row(Text(replica.name, style="bold"), replica.url, f"pid {replica.pid}", work)
    return Group(
        Text(f"\ngateway {url} with {policy}, in front of replicas of unequal speed:"),
        table,
        Text(f"traffic: {rate:.0f} requests a second, {100 * load:.0f} % of what they were measured to do"),
    )


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))


def _model(status: FleetStatus) -> ModelStatus:
    return status.models[MODEL]


def _count(failures: int) -> Text:
    return Text(f"{failures:,}", style="red" if failures else "")
