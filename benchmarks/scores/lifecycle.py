"""From the runs of `benchmarks.lifecycle` to its tables, and the goals checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from ..mocks.faults import Scenario
from ..peers.health_checked import HEALTH_CHECKED_PEERS, PROBE_INTERVAL_SECONDS
from ..testbed.rounds import Report, Rounds, verdict
from .arena import MAX_LAG_SECONDS
from .detection import FaultObservation, FaultRun

GOAL_FAILED_PERCENT = 0.1
GOAL_SHARE_PERCENT = 1.0
GOAL_DETECTION_SECONDS = 2 * PROBE_INTERVAL_SECONDS
HEADER = ["proxy", "failed", "given to the bad one", "detection s", "p50 ms", "p99 ms", "slowest ms", "back s"]


def report(scenario: Scenario, seen: Rounds[FaultRun]) -> Report:
    rows = [row(name, runs) for name, runs in seen.seen.items()]
    rows += [[name, "did not run", *[""] * (len(HEADER) - 2)] for name in seen.broken]
    raw = {name: [asdict(run) for run in runs] for name, runs in seen.seen.items()}
    title = f"{scenario.title}, {scenario.load:.0%} load"
    return Report(title, HEADER, rows, verdicts(scenario, seen), raw, seen.broken)


def row(name: str, runs: list[FaultRun]) -> list[str]:
    """Failures and shares over all rounds together; of times, the worst, for a goal holds always or not at all."""
    observations = [s for run in runs for s in run.observations]
    backs = [s.back for s in observations]
    return [
        name,
        f"{failed(runs):.2f} %",
        f"{share(observations):.2f} %" if observations else "",
        seconds(worst(s.detection for s in observations)),
        f"{1000 * median_of(run.p50 for run in runs):,.0f}",
        f"{1000 * median_of(run.p99 for run in runs):,.0f}",
        f"{1000 * max(run.slowest for run in runs):,.0f}",
        "" if not observations else "not yet" if None in backs else seconds(worst(backs)),
    ]


def failed(runs: list[FaultRun]) -> float:
    return 100.0 * sum(run.failed for run in runs) / max(1, sum(run.requests for run in runs))


def share(observations: list[FaultObservation]) -> float:
    """Of the replica that was given most, where several were bad."""
    kinds = {s.kind for s in observations}
    return max((_share([s for s in observations if s.kind == kind]) for kind in kinds), default=0.0)


def _share(observations: list[FaultObservation]) -> float:
    return 100.0 * sum(s.reached for s in observations) / max(1, sum(s.sent for s in observations))


def worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def median_of(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def verdicts(scenario: Scenario, seen: Rounds[FaultRun]) -> list[str]:
    lines = []
    for name, runs in seen.seen.items():
        if name in HEALTH_CHECKED_PEERS and HEALTH_CHECKED_PEERS[name].ours:
            observations = [s for run in runs for s in run.observations]
            lines.append(verdict(f"{name}: {scenario.name}: failed", failed(runs), GOAL_FAILED_PERCENT, unit=" %"))
            if observations:
                goal = f"{name}: {scenario.name}: given to the bad one after detection"
                lines.append(verdict(goal, share(observations), GOAL_SHARE_PERCENT, unit=" %"))
            if (noticed := worst(s.detection for s in observations)) is not None:
                lines.append(verdict(f"{name}: {scenario.name}: detection", noticed, GOAL_DETECTION_SECONDS, unit=" s"))
    late = sorted({name for name, runs in seen.seen.items() if any(run.lag > MAX_LAG_SECONDS for run in runs)})
    if late:
        lines.append(f"the benchmark itself was late, so latencies are not to be trusted: {', '.join(late)}")
    return lines
