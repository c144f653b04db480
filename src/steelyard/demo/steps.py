"""The guided minute in words: its steps, and what is said of each afterwards. Pure: numbers in, sentences out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from ..units import show_seconds
from .tally import Tally

FIRST = "round_robin"  # what the other policy is compared with
GUIDED = 60  # seconds
PAUSES = 4  # seconds, of them together
SHORT = 30  # seconds; with fewer only the two policies are compared
ALIKE = 0.15  # p99s that differ by less than this share are said to be alike
TOO_SHORT = "too short to compare the two policies"
FEW = 100  # requests, below which a p99 is that of one or two of them
BUSY = 1 / 3  # seconds that answers come late for each that was meant: more, and a p99 tells of other programs


class Step(NamedTuple):
    key: str
    seconds: float
    title: str
    look: str
    seed: int = 7  # of the requests


class Outcome(msgspec.Struct):
    """Of a step; `note` is empty if it did not come to its end."""

    step: Step
    tally: Tally
    note: str = ""
    late: float = 0.0  # seconds by which the replicas' answers took longer than meant, for each that was meant


def merged(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    """By key: steps that came twice are one, as late as the later of them: a p99 comes from the worst."""
    found: dict[str, Outcome] = {}
    for outcome in outcomes:
        key, was = outcome.step.key, found.get(outcome.step.key)
        both = was and Outcome(was.step, was.tally.with_also(outcome.tally), outcome.note, max(was.late, outcome.late))
        found[key] = both or outcome
    return found


def guide(policy: str) -> tuple[Step, ...]:
    """The policies take turns: what else the machine does, it does to both."""
    return (
        Step("before", 6.5, f"{FIRST}: the replicas take turns", "the p99: large requests queue at quarter"),
        Step("after", 6.5, f"{policy}: the same requests once more", "the p99, and who gets how much"),
        Step("before", 6.5, f"{FIRST} again, with other requests", "whether that was luck", seed=8),
        Step("after", 6.5, f"{policy} again, with those too", "the p99 of both rounds together", seed=8),
        Step("slow", 9, "fast becomes four times slower", "its share: the traffic moves away"),
        Step("dead", 10, "half is killed (kill -9), and comes back cold", "whether any request fails"),
        Step("double", 15, "the load doubles, and replicas may be started", "who is new among the replicas"),
    )


def plan(seconds: int | None, policy: str) -> tuple[Step, ...]:
    """What fits into so many seconds; None: there is time."""
    steps = guide(policy)
    if seconds is None or seconds >= GUIDED + PAUSES:
        return steps
    if seconds >= SHORT:
        return tuple(step._replace(seconds=step.seconds * (seconds - PAUSES) / GUIDED) for step in steps)
    return tuple(step._replace(seconds=seconds * 0.2) for step in steps if step.key in ("before", "after"))


def shared(tally: Tally) -> str:
    """Who gave the answers."""
    if not tally.answered:
        return "no answers"
    return ", ".join(f"{name} {100 * tally.share(name):.0f} %" for name in sorted(tally.answered)) + " of the answers"


def compared(before: Outcome, policy: str, after: Outcome) -> str:
    """The p99 of both, and what is to be thought of it."""
    if not before.tally.latency.count or not after.tally.latency.count:
        return TOO_SHORT
    a, b = before.tally.latency.quantile(0.99), after.tally.latency.quantile(0.99)
    told = f"p99 {show_seconds(a)} with {FIRST}, {show_seconds(b)} with {policy}"
    if (late := max(before.late, after.late)) > BUSY:
        return f"{told}, but this machine is too busy to compare them: 1 s of a replica's time took {1 + late:.1f} s"
    if min(before.tally.requests, after.tally.requests) < FEW:
        return f"{told}; so few requests say little"
    if b < a * (1 - ALIKE):
        return f"{told}: {a / b:.1f} times shorter, on the same requests"
    if b <= a * (1 + ALIKE):
        return f"{told}: about alike this time, so nothing is shown by it"
    return f"{told}: longer this time"


def moved(name: str, before: float, after: float | None) -> str:
    """Shares of the answers; None: it could not be slowed."""
    if after is None:
        return f"{name} does not answer, so it cannot be made slower"
    told = f"{name} had {100 * before:.0f} % of the answers before, {100 * after:.0f} % while it was slow"
    return told if after < 0.8 * before else f"{told}: this time it did not move away"


def returned(name: str, tally: Tally, retried: int, early: int | None, ready: float | None) -> str:
    lost = f"{tally.failures} of {tally.requests:,} failed, {retried} sent again to another"
    if ready is None:
        return f"{lost}; {name} was not ready again in time"
    told = f"{lost}; {name} was ready again after {ready:.1f} s"
    return told if early is None else f"{told}, and {early} requests reached it before that"


def grown(ours: int, started: int, answered: Mapping[str, int], first: float | None) -> str:
    """`answered`: by those that were started."""
    if not started:
        return f"still {ours} replicas: that was enough, or there was no time"
    told = f"{ours} → {ours + started} replicas by the autoscaler"
    if first is None:
        return f"{told}; none of the new ones has answered yet"
    total = sum(answered.values())
    return f"{told}; the first answer of a new one came {first:.1f} s after the load doubled, {total:,} in all"
