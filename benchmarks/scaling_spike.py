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
COLD_START_SECONDS, SERVICE_SECONDS = 3.0, 0.1  # seconds
CONCURRENCY = 4  # requests
BASE_RATE, SPIKE_FACTOR, RAMP_SECONDS = 10.0, 5.0, 2.0
GOAL_P99_SECONDS = 0.25  # latency is back when the p99 stays below
P99_WINDOW_SECONDS, P99_STEP_SECONDS = 2.0, 0.25  # seconds of requests in each p99, and between two
SCALER_OPTIONS = {
    "window": 30,
    "stabilization_window": 15,
}  # options of the scaler: down sooner than is usual, to see it
MAX_REPLICAS = 8  # replicas
STARTS_FROM_ZERO = 3  # starts from zero in each round


@dataclass
class RoundResult:
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


def spike(seen: RoundResult, seed: int, calm: float, high: float) -> None:
    """`calm` seconds at the base rate, `high` seconds of spike."""
    with gateway(
        COLD_START_SECONDS, SERVICE_SECONDS, CONCURRENCY, min=1, max=MAX_REPLICAS, scaler_options=SCALER_OPTIONS
    ) as served:
        served.wait(1, 1)
        with Load(served.port, BASE_RATE, seed) as load:
            sleep(calm)
            served.wait(1, 1)
            seen.first = served.scaling()["ready"]
            began = monotonic()
            _rise(load, began)
            served.wait(2, MAX_REPLICAS)
            seen.more = monotonic() - began
            sleep(max(0.0, began + high - monotonic()))
            ended, load.rate = monotonic(), BASE_RATE
            served.wait(1, 1)
            sleep(calm / 2)
        scaling = served.scaling()
    seen.failed, seen.sent = len(load.failed), len(load.failed) + len(load.answers)
    seen.before = _p99([seconds for due, seconds in load.answers if due < began])
    seen.worst = max(seconds for _, seconds in load.answers)
    seen.back = _back(load.answers, began, ended)
    seen.most, seen.last = max(step["after"] for step in scaling["steps"]), scaling["ready"]


def _rise(load: Load, began: float) -> None:
    while (since := monotonic() - began) < RAMP_SECONDS:
        load.rate = BASE_RATE * (1.0 + (SPIKE_FACTOR - 1.0) * since / RAMP_SECONDS)
        sleep(0.05)
    load.rate = BASE_RATE * SPIKE_FACTOR


def _back(answers: list[tuple[float, float]], began: float, ended: float) -> float:
    """From when on each p99 is good, counted from the first additional request."""
    last, at = 0.0, began
    while at < ended:
        within = [seconds for due, seconds in answers if at <= due < at + P99_WINDOW_SECONDS]
        if within and _p99(within) > GOAL_P99_SECONDS:
            last = at + P99_STEP_SECONDS - began
        at += P99_STEP_SECONDS
    return last


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


def from_zero(seen: RoundResult) -> None:
    with gateway(COLD_START_SECONDS, SERVICE_SECONDS, CONCURRENCY, min=0, max=1, scale_to_zero_after="1s") as served:
        for _ in range(STARTS_FROM_ZERO):
            served.wait(0, 0)
            began = monotonic()
            answer = asyncio.run(ask(served.port))
            seen.firsts.append(monotonic() - began)
            seen.failed += not answer.startswith(b"HTTP/1.1 200 ")
            seen.sent += 1


def run(options: argparse.Namespace) -> list[RoundResult]:
    found = [RoundResult() for _ in range(options.rounds)]
    for turn, seen in enumerate(found):
        spike(seen, turn, options.calm, options.high)
        from_zero(seen)
    return found


def report(rounds: list[RoundResult]) -> Report:
    def row(what: str, value: Callable[[RoundResult], float], form: str = "{:.2f} s") -> list[str]:
        values = [value(seen) for seen in rounds]
        return [what, form.format(median(values)), form.format(max(values))]

    rows = [
        row("requests", lambda seen: seen.sent, "{:.0f}"),
        row("failed", lambda seen: seen.failed, "{:.0f}"),
        row("replicas before the spike", lambda seen: seen.first, "{:.0f}"),
        row("p99 before the spike", lambda seen: seen.before),
        row("slowest answer in the spike", lambda seen: seen.worst),
        row("until a second replica is ready", lambda seen: seen.more),
        row(f"until the p99 stays below {GOAL_P99_SECONDS:g} s", lambda seen: seen.back),
        row("replicas at the most", lambda seen: seen.most, "{:.0f}"),
        row("replicas afterwards", lambda seen: seen.last, "{:.0f}"),
        row("from zero: the first answer", lambda seen: max(seen.firsts)),
    ]
    rates = f"{BASE_RATE:g} → {BASE_RATE * SPIKE_FACTOR:g} requests/s of {1000 * SERVICE_SECONDS:g} ms"
    title = f"{rates} within {RAMP_SECONDS:g} s, cold start {COLD_START_SECONDS:g} s"
    return Report(title, ["in each round", "median", "worst"], rows, verdicts(rounds))


def verdicts(rounds: list[RoundResult]) -> list[str]:
    failed = sum(seen.failed for seen in rounds)
    back, first = max(seen.back for seen in rounds), max(max(seen.firsts) for seen in rounds)
    goal_back, goal_first = COLD_START_SECONDS + 5, COLD_START_SECONDS + 1
    return [
        f"{_mark(failed == 0)} failed requests: {failed} (goal 0)",
        f"{_mark(back <= goal_back)} p99 back after {back:.1f} s (goal ≤ {goal_back:g} s)",
        f"{_mark(all(seen.last == 1 for seen in rounds))} one replica afterwards",
        f"{_mark(first <= goal_first)} first answer from zero after {first:.1f} s (goal ≤ {goal_first:g} s)",
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
