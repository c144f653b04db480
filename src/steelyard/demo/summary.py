"""What the demo says at its end: each step in numbers, and the two policies beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..units import format_seconds
from .screen import table
from .steps import StepResult, merge_rounds
from .traffic_stats import TrafficStats

NOTE_COLUMNS = 62  # columns; the whole table fits into 100
NEXT_STEPS = {
    "steelyard demo --no-tour": "only replicas, gateway and traffic, until Ctrl-C",
    "steelyard serve --help": "the gateway in front of replicas of your own",
}


def summary(
    outcomes: Sequence[StepResult], comparison: str, tally: TrafficStats, seconds: float, policy: str
) -> RenderableType:
    last = "" if outcomes else f", at the end with {policy}"
    said = Text(
        f"{tally.requests:,} requests in {seconds:.1f} s{last}: {tally.failures} failed, "
        f"p50 {format_seconds(tally.latency.quantile(0.5))}, p99 {format_seconds(tally.latency.quantile(0.99))}",
        style="bold",
    )
    problems = [Text(f"{count} failed: {what}", style="red") for what, count in tally.failed.most_common(5)]
    told = [Text(f"\n{comparison}", style="bold")] if comparison else []
    return Group(Text(), said, *problems, Text(), _steps(outcomes, comparison) if outcomes else _shares(tally), *told)


def _steps(outcomes: Sequence[StepResult], comparison: str) -> RenderableType:
    rows = table()
    rows.add_column("step", max_width=NOTE_COLUMNS)
    for name in ("requests", "failed", "p50", "p99"):
        rows.add_column(name, justify="right", no_wrap=True)
    for outcome in merge_rounds(outcomes).values():
        tally = outcome.stats
        rows.add_row(
            Group(Text(outcome.step.title), *_note(outcome, comparison)),
            f"{tally.requests:,}",
            f"{tally.failures:,}",
            format_seconds(tally.latency.quantile(0.5)),
            format_seconds(tally.latency.quantile(0.99)),
        )
    return rows


def _note(outcome: StepResult, comparison: str) -> Iterator[RenderableType]:
    """Not the comparison: it is said below."""
    note = outcome.note or "cut short"
    if note != comparison:
        yield Padding(Text(note, style="dim"), (0, 0, 0, 2))


def _shares(tally: TrafficStats) -> RenderableType:
    rows = table()
    rows.add_column("replica")
    for name in ("requests", "share"):
        rows.add_column(name, justify="right", no_wrap=True)
    for name in sorted(tally.answered):
        rows.add_row(name, f"{tally.answered[name]:,}", f"{100 * tally.share(name):.1f} %")
    return rows
