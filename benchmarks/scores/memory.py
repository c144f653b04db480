"""From the runs of `benchmarks.memory` to its table, and the goals checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import nan
from statistics import median

from ..load.memory_requests import MIB, Burst
from ..testbed.rounds import Report, Rounds, verdict

GOAL_THROUGHPUT_RATIO = 0.9  # to the best static limit
HEADER = ["setup", "servers killed", "failed", "requests/s", "p50 ms", "p99 ms", "peak use"]


@dataclass(frozen=True)
class Setup:
    """A configuration of the gateway: the memory ledger, a static limit, or neither."""

    name: str
    ledger: bool = False
    limit: int | None = None  # requests at once for each model, or for the device
    on_device: bool = False
    declared: bool = True  # the models' memory is in the configuration
    workers: int = 1

    @property
    def static(self) -> bool:
        return self.limit is not None


@dataclass(frozen=True)
class Run:
    """What one run of one way showed."""

    killed: int
    asked: int
    good: int
    rate: float  # good answers per second
    p50: float
    p99: float
    peak: int  # bytes of the device in use, at most
    failed: dict[str, int]


def summary(burst: Burst, killed: int) -> Run:
    good = sorted(answer.seconds for answer in burst.good)
    return Run(
        killed,
        len(burst.answers),
        len(good),
        len(good) / burst.seconds,
        quantile(good, 0.5),
        quantile(good, 0.99),
        burst.peak,
        dict(burst.failed),
    )


def quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else nan


def report(title: str, setups: Sequence[Setup], seen: Rounds[Run]) -> Report:
    rows = [row(setup.name, seen.seen[setup.name]) for setup in setups if setup.name in seen.seen]
    rows += [[name, "did not run", *[""] * (len(HEADER) - 2)] for name in seen.broken]
    raw = {name: [asdict(run) for run in runs] for name, runs in seen.seen.items()}
    return Report(title, HEADER, rows, verdicts(setups, seen), raw, seen.broken)


def row(name: str, runs: list[Run]) -> list[str]:
    """Deaths of all rounds together and the most that was ever in use; the rest are medians."""
    asked, good = sum(run.asked for run in runs), sum(run.good for run in runs)
    return [
        name,
        str(killed(runs)),
        f"{100.0 * (asked - good) / max(1, asked):.1f} %",
        f"{rate(runs):.1f}",
        f"{1000 * median(run.p50 for run in runs):,.0f}",
        f"{1000 * median(run.p99 for run in runs):,.0f}",
        f"{max(run.peak for run in runs) / MIB:.0f} MiB",
    ]


def killed(runs: list[Run]) -> int:
    return sum(run.killed for run in runs)


def rate(runs: list[Run]) -> float:
    return median(run.rate for run in runs)


def best_static(setups: Sequence[Setup], seen: Rounds[Run]) -> Setup | None:
    """The fastest static limit without kills in any round."""
    harmless = [
        setup for setup in setups if setup.static and setup.name in seen.seen and not killed(seen.seen[setup.name])
    ]
    return max(harmless, key=lambda setup: rate(seen.seen[setup.name]), default=None)


def verdicts(setups: Sequence[Setup], seen: Rounds[Run]) -> list[str]:
    lines, best = [], best_static(setups, seen)
    for setup in setups:
        runs = seen.seen.get(setup.name)
        if not setup.ledger or setup.static or runs is None:
            continue
        lines.append(verdict(f"{setup.name}: servers killed", killed(runs), 0))
        if best is not None:
            share = rate(runs) / rate(seen.seen[best.name])
            lines.append(
                verdict(f"{setup.name}: throughput ÷ that of {best.name}", share, GOAL_THROUGHPUT_RATIO, least=True)
            )
    if best is None and lines and any(setup.static and setup.name in seen.seen for setup in setups):
        lines.append("every static limit had kills: no comparison")
    return lines
