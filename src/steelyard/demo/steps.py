"""The steps of the guided minute, and a sentence about each afterwards. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from ..units import format_seconds
from .traffic import TrafficStats

BASELINE_POLICY = "round_robin"  # what the other policy is compared with
TOUR_SECONDS = 60
PAUSE_SECONDS = 4  # all pauses together
MIN_FULL_TOUR_SECONDS = 30  # with fewer only the two policies are compared
EQUAL_P99_SHARE = 0.15  # p99s that differ by less are alike
TOO_SHORT_NOTE = "too short to compare the two policies"
MIN_REQUESTS = 100  # with fewer, a p99 is that of one or two requests
MAX_OVERRUN_RATIO = 1 / 3  # above, a p99 tells of other programs on the machine


class Step(NamedTuple):
    key: str  # GuidedTour does it in `_run_<key>`
    seconds: float
    title: str
    watch: str
    seed: int = 7  # of the requests


class StepResult(msgspec.Struct):
    step: Step
    stats: TrafficStats
    note: str = ""  # empty: the step did not come to its end
    overrun_ratio: float = 0.0  # late seconds for each that was meant


def merge_rounds(outcomes: Iterable[StepResult]) -> dict[str, StepResult]:
    """By key: both rounds are one, as late as the later of them."""
    found: dict[str, StepResult] = {}
    for outcome in outcomes:
        key, was = outcome.step.key, found.get(outcome.step.key)
        both = was and StepResult(
            was.step, was.stats.merged_with(outcome.stats), outcome.note, max(was.overrun_ratio, outcome.overrun_ratio)
        )
        found[key] = both or outcome
    return found


def tour_steps(policy: str) -> tuple[Step, ...]:
    """The policies take turns: what else the machine does, it does to both."""
    return (
        Step("before", 6.5, f"{BASELINE_POLICY}: the replicas take turns", "the p99: large requests queue at quarter"),
        Step("after", 6.5, f"{policy}: the same requests once more", "the p99, and each replica's share"),
        Step("before", 6.5, f"{BASELINE_POLICY} again, with other requests", "whether that was luck", seed=8),
        Step("after", 6.5, f"{policy} again, with those too", "the p99 of both rounds together", seed=8),
        Step("slow", 9, "fast becomes four times slower", "its share: the traffic moves away"),
        Step("dead", 10, "half is killed (kill -9), and comes back cold", "whether any request fails"),
        Step("double", 15, "the load doubles, and replicas may be started", "the new replicas"),
    )


def plan(seconds: int | None, policy: str) -> tuple[Step, ...]:
    steps = tour_steps(policy)
    if seconds is None or seconds >= TOUR_SECONDS + PAUSE_SECONDS:
        return steps
    if seconds >= MIN_FULL_TOUR_SECONDS:
        return tuple(step._replace(seconds=step.seconds * (seconds - PAUSE_SECONDS) / TOUR_SECONDS) for step in steps)
    return tuple(step._replace(seconds=seconds * 0.2) for step in steps if step.key in ("before", "after"))


def share_note(stats: TrafficStats) -> str:
    if not stats.answered:
        return "no answers"
    return ", ".join(f"{name} {100 * stats.share(name):.0f} %" for name in sorted(stats.answered)) + " of the answers"


def comparison_note(before: StepResult, policy: str, after: StepResult) -> str:
    if not before.stats.latency.count or not after.stats.latency.count:
        return TOO_SHORT_NOTE
    a, b = before.stats.latency.quantile(0.99), after.stats.latency.quantile(0.99)
    text = f"p99 {format_seconds(a)} with {BASELINE_POLICY}, {format_seconds(b)} with {policy}"
    if (late := max(before.overrun_ratio, after.overrun_ratio)) > MAX_OVERRUN_RATIO:
        return f"{text}, but this machine is too busy to compare them: 1 s of a replica's time took {1 + late:.1f} s"
    if min(before.stats.requests, after.stats.requests) < MIN_REQUESTS:
        return f"{text}; so few requests say little"
    if b < a * (1 - EQUAL_P99_SHARE):
        return f"{text}: {a / b:.1f} times shorter, on the same requests"
    if b <= a * (1 + EQUAL_P99_SHARE):
        return f"{text}: about alike this time, so nothing is shown by it"
    return f"{text}: longer this time"


def slowdown_note(name: str, before: float, after: float | None) -> str:
    """Shares of the answers; None: it could not be slowed."""
    if after is None:
        return f"{name} does not answer, so it cannot be made slower"
    text = f"{name} had {100 * before:.0f} % of the answers before, {100 * after:.0f} % while it was slow"
    return text if after < 0.8 * before else f"{text}: this time it did not move away"


def restart_note(name: str, stats: TrafficStats, retried: int, early: int | None, ready: float | None) -> str:
    lost = f"{stats.failures} of {stats.requests:,} failed, {retried} sent again to another"
    if ready is None:
        return f"{lost}; {name} was not ready again in time"
    text = f"{lost}; {name} was ready again after {ready:.1f} s"
    return text if early is None else f"{text}, and {early} requests reached it before that"


def scaling_note(ours: int, started: int, answered: Mapping[str, int], first: float | None) -> str:
    """`answered`: by those that were started."""
    if not started:
        return f"still {ours} replicas: that was enough, or there was no time"
    text = f"{ours} → {ours + started} replicas by the autoscaler"
    if first is None:
        return f"{text}; none of the new ones has answered yet"
    total = sum(answered.values())
    return f"{text}; the first answer of a new one came {first:.1f} s after the load doubled, {total:,} in all"
