"""What the demo says at its end: each step in numbers, and the two policies beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ..units import show_seconds
from .screen import table
from .steps import Outcome
from .tally import Tally

NEXT = {
    "steelyard demo --no-guide": "only replicas, gateway and traffic, until Ctrl-C",
    "steelyard serve --help": "the gateway in front of replicas of your own",
}


def summary(outcomes: Sequence[Outcome], comparison: str, tally: Tally, seconds: float, policy: str) -> RenderableType:
    said = Text(
        f"{tally.requests:,} requests in {seconds:.1f} s, at the end with {policy}: {tally.failures} failed, "
        f"p50 {show_seconds(tally.latency.quantile(0.5))}, p99 {show_seconds(tally.latency.quantile(0.99))}",
        style="bold",
    )
    problems = [Text(f"{count} failed: {what}", style="red") for what, count in tally.failed.most_common(5)]
    told = [Text(f"\n{comparison}", style="bold")] if comparison else []
    return Group(Text(), said, *problems, *([_steps(outcomes)] if outcomes else [_shares(tally)]), *told)


def _steps(outcomes: Sequence[Outcome]) -> RenderableType:
    rows = table()
    rows.add_column("\nstep")
    for name in ("requests", "failed", "p50", "p99"):
        rows.add_column(f"\n{name}", justify="right", no_wrap=True)
    for outcome in outcomes:
        tally = outcome.tally
        rows.add_row(
            Text.assemble(outcome.step.title, "\n", (f"  {outcome.note or 'cut short'}", "dim")),
            f"{tally.requests:,}",
            f"{tally.failures:,}",
            show_seconds(tally.latency.quantile(0.5)),
            show_seconds(tally.latency.quantile(0.99)),
        )
    return rows


def _shares(tally: Tally) -> RenderableType:
    rows = table()
    rows.add_column("\nreplica")
    for name in ("requests", "share"):
        rows.add_column(f"\n{name}", justify="right", no_wrap=True)
    for name in sorted(tally.answered):
        rows.add_row(name, f"{tally.answered[name]:,}", f"{100 * tally.share(name):.1f} %")
    return rows
