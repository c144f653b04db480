"""From the runs of `benchmarks.lifecycle` to its tables, and the goals checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from ..mocks.faults import Scenario
from ..peers.health_checked import INTERVAL, PROBED
from ..testbed.rounds import Report, Rounds, verdict
from .arena import LAG
from .detection import Bout, Sighting

FAILED = 0.1  # percent of requests
SHARE = 1.0  # percent of requests, after detection
DETECTION = 2 * INTERVAL  # seconds
HEADER = ["proxy", "failed", "given to the bad one", "detection s", "p50 ms", "p99 ms", "slowest ms", "back s"]


def report(scenario: Scenario, seen: Rounds[Bout]) -> Report:
    rows = [row(name, bouts) for name, bouts in seen.seen.items()]
    rows += [[name, "did not run", *[""] * (len(HEADER) - 2)] for name in seen.broken]
    raw = {name: [asdict(bout) for bout in bouts] for name, bouts in seen.seen.items()}
    title = f"{scenario.title}, {scenario.load:.0%} load"
    return Report(title, HEADER, rows, verdicts(scenario, seen), raw, seen.broken)


def row(name: str, bouts: list[Bout]) -> list[str]:
    """Failures and shares over all rounds together; of times, the worst, for a goal holds always or not at all."""
    sightings = [s for bout in bouts for s in bout.sightings]
    backs = [s.back for s in sightings]
    return [
        name,
        f"{failed(bouts):.2f} %",
        f"{share(sightings):.2f} %" if sightings else "",
        seconds(worst(s.detection for s in sightings)),
        f"{1000 * middle(bout.p50 for bout in bouts):,.0f}",
        f"{1000 * middle(bout.p99 for bout in bouts):,.0f}",
        f"{1000 * max(bout.slowest for bout in bouts):,.0f}",
        "" if not sightings else "not yet" if None in backs else seconds(worst(backs)),
    ]


def failed(bouts: list[Bout]) -> float:
    return 100.0 * sum(bout.failed for bout in bouts) / max(1, sum(bout.requests for bout in bouts))


def share(sightings: list[Sighting]) -> float:
    """Of the replica that was given most, where several were bad."""
    kinds = {s.kind for s in sightings}
    return max((_share([s for s in sightings if s.kind == kind]) for kind in kinds), default=0.0)


def _share(sightings: list[Sighting]) -> float:
    return 100.0 * sum(s.reached for s in sightings) / max(1, sum(s.sent for s in sightings))


def worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def middle(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def verdicts(scenario: Scenario, seen: Rounds[Bout]) -> list[str]:
    lines = []
    for name, bouts in seen.seen.items():
        if name in PROBED and PROBED[name].ours:
            sightings = [s for bout in bouts for s in bout.sightings]
            lines.append(verdict(f"{name}: {scenario.name}: failed", failed(bouts), FAILED, unit=" %"))
            if sightings:
                told = f"{name}: {scenario.name}: given to the bad one after detection"
                lines.append(verdict(told, share(sightings), SHARE, unit=" %"))
            if (noticed := worst(s.detection for s in sightings)) is not None:
                lines.append(verdict(f"{name}: {scenario.name}: detection", noticed, DETECTION, unit=" s"))
    late = sorted({name for name, bouts in seen.seen.items() if any(bout.lag > LAG for bout in bouts)})
    if late:
        lines.append(f"the benchmark itself was late, so latencies are not to be trusted: {', '.join(late)}")
    return lines
