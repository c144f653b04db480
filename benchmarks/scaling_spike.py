"""A spike and a start from zero with real processes: failures, how soon latency is back, how soon the first answer is.

    python -m benchmarks.scaling_spike [--rounds 3] [--quick] [--update-docs]

`steelyard serve` with two workers starts the replicas itself. Each works on four requests at once, 100 ms on each
(asleep: the machine's cores do not matter), and is ready three seconds after its start. Requests come by chance (a
Poisson process), each on a connection of its own, whatever became of the ones before: one second of work per second,
for which one replica is right, then five, of which it could do four.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import monotonic, sleep

from rich.console import Console

from .overhead import show
from .testbed.autoscaled_gateway import Load, ask, gateway
from .testbed.docs_pages import markdown_table, write_section
from .testbed.machine import describe
from .testbed.rounds import Report

PAGE, SECTION = "autoscaling.md", "benchmarks/scaling_spike.py"
COLD, WORK = 3.0, 0.1  # seconds
AT_ONCE = 4  # requests
RATE, TIMES, RISE = 10.0, 5.0, 2.0  # requests per second, times as many, within so many seconds
LATE = 0.25  # seconds: latency is back when the p99 stays below
WINDOW, STEP = 2.0, 0.25  # seconds of requests in each p99, and between two
QUICKLY = {"window": 30, "stabilization_window": 15}  # options of the scaler: down sooner than is usual, to see it
MOST = 8  # replicas
AGAIN = 3  # starts from zero in each round


@dataclass
class Seen:
    """In one round."""

    failed: int = 0
    sent: int = 0
    first: int = 0  # replicas before the spike
    before: float = 0.0  # p99 in seconds
    worst: float = 0.0  # latency in seconds
    more: float = 0.0  # seconds until a second replica was ready
    back: float = 0.0  # seconds until latency was back
    most: int = 0  # replicas
    last: int = 0
    firsts: list[float] = field(default_factory=list)  # seconds to the first answer, from zero


def spike(seen: Seen, seed: int, calm: float, high: float) -> None:
    """So many seconds before it, and of it."""
    with gateway(COLD, WORK, AT_ONCE, min=1, max=MOST, scaler_options=QUICKLY) as served:
        served.wait(1, 1)
        with Load(served.port, RATE, seed) as load:
            sleep(calm)
            served.wait(1, 1)
            seen.first = served.scaling()["ready"]
            began = monotonic()
            _rise(load, began)
            served.wait(2, MOST)
            seen.more = monotonic() - began
            sleep(max(0.0, began + high - monotonic()))
            ended, load.rate = monotonic(), RATE
            served.wait(1, 1)
            sleep(calm / 2)
        told = served.scaling()
    seen.failed, seen.sent = len(load.failed), len(load.failed) + len(load.answers)
    seen.before = _p99([seconds for due, seconds in load.answers if due < began])
    seen.worst = max(seconds for _, seconds in load.answers)
    seen.back = _back(load.answers, began, ended)
    seen.most, seen.last = max(step["after"] for step in told["steps"]), told["ready"]


def _rise(load: Load, began: float) -> None:
    while (since := monotonic() - began) < RISE:
        load.rate = RATE * (1.0 + (TIMES - 1.0) * since / RISE)
        sleep(0.05)
    load.rate = RATE * TIMES


def _back(answers: list[tuple[float, float]], began: float, ended: float) -> float:
    """From when on each p99 is good, counted from the first additional request."""
    last, at = 0.0, began
    while at < ended:
        within = [seconds for due, seconds in answers if at <= due < at + WINDOW]
        if within and _p99(within) > LATE:
            last = at + STEP - began
        at += STEP
    return last


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


def from_zero(seen: Seen) -> None:
    with gateway(COLD, WORK, AT_ONCE, min=0, max=1, scale_to_zero_after="1s") as served:
        for _ in range(AGAIN):
            served.wait(0, 0)
            began = monotonic()
            answer = asyncio.run(ask(served.port))
            seen.firsts.append(monotonic() - began)
            seen.failed += not answer.startswith(b"HTTP/1.1 200 ")
            seen.sent += 1


def run(options: argparse.Namespace) -> list[Seen]:
    found = [Seen() for _ in range(options.rounds)]
    for turn, seen in enumerate(found):
        spike(seen, turn, options.calm, options.high)
        from_zero(seen)
    return found


def report(rounds: list[Seen]) -> Report:
    def row(what: str, value: Callable[[Seen], float], form: str = "{:.2f} s") -> list[str]:
        values = [value(seen) for seen in rounds]
        return [what, form.format(median(values)), form.format(max(values))]

    rows = [
        row("requests", lambda seen: seen.sent, "{:.0f}"),
        row("failed", lambda seen: seen.failed, "{:.0f}"),
        row("replicas before the spike", lambda seen: seen.first, "{:.0f}"),
        row("p99 before the spike", lambda seen: seen.before),
        row("slowest answer in the spike", lambda seen: seen.worst),
        row("until a second replica is ready", lambda seen: seen.more),
        row(f"until the p99 stays below {LATE:g} s", lambda seen: seen.back),
        row("replicas at the most", lambda seen: seen.most, "{:.0f}"),
        row("replicas afterwards", lambda seen: seen.last, "{:.0f}"),
        row("from zero: the first answer", lambda seen: max(seen.firsts)),
    ]
    title = f"{RATE:g} → {RATE * TIMES:g} requests/s of {1000 * WORK:g} ms within {RISE:g} s, cold start {COLD:g} s"
    return Report(title, ["in each round", "median", "worst"], rows, verdicts(rounds))


def verdicts(rounds: list[Seen]) -> list[str]:
    failed = sum(seen.failed for seen in rounds)
    back, first = max(seen.back for seen in rounds), max(max(seen.firsts) for seen in rounds)
    return [
        f"{_mark(failed == 0)} failed requests: {failed} (goal 0)",
        f"{_mark(back <= COLD + 5)} p99 back after {back:.1f} s (goal ≤ cold start + 5 s = {COLD + 5:g} s)",
        f"{_mark(all(seen.last == 1 for seen in rounds))} one replica afterwards",
        f"{_mark(first <= COLD + 1)} from zero answered after {first:.1f} s (goal ≤ cold start + 1 s = {COLD + 1:g} s)",
    ]


def _mark(good: bool) -> str:
    return "✓" if good else "✗"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    parser.add_argument("--update-docs", action="store_true", help=f"write the table into docs/{PAGE}")
    options = parser.parse_args()
    options.calm, options.high = (5.0, 12.0) if options.quick else (20.0, 30.0)
    options.rounds = 1 if options.quick else options.rounds
    return options


def main() -> None:
    options = arguments()
    machine = describe(f"python -m benchmarks.scaling_spike --rounds {options.rounds}")
    found = report(run(options))
    show(Console(width=140), found, machine)
    if options.update_docs:
        goals = "\n".join(f"- {line}" for line in found.verdicts)
        table = markdown_table(found.header, found.rows)
        write_section(PAGE, SECTION, f"Measured {machine}.\n\n**{found.title}**\n\n{table}\n\n{goals}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
