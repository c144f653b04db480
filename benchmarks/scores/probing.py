"""From the rounds of `benchmarks.probing` to its table, and the goals checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median

from ..testbed.rounds import Report, Rounds, verdict
from .probe_spread import Spread

PROBED, UNPROBED = "probed", "not probed"
GOAL_SUPERVISOR_PERCENT = 25.0
MAX_LAG_MS = 1.0  # p99: above, the machine was too busy
P99_NOISE = 0.1  # a difference of p99 that is none; or what rounds without probing differ by, if that is more


@dataclass(frozen=True)
class ProbingRound:
    """Shares of a core in percent, latencies in ms, memory in MiB."""

    supervisor: float
    worker: float
    memory: float
    p50: float
    p99: float
    failed: int
    lag: float
    spread: Spread


def report(title: str, seen: Rounds[ProbingRound]) -> Report:
    header = ["", "supervisor, % of a core", "worker, %", "p50 ms", "p99 ms", "p99 ± %", "supervisor MiB", "failed"]
    header += ["probes/s", "between two of one, s", "most in 0.1 s"]
    rows = [row(seen, name) for name in seen.seen]
    raw = {name: [asdict(one) for one in turns] for name, turns in seen.seen.items()}
    return Report(title, header, rows, verdicts(seen), raw, seen.broken)


def row(seen: Rounds[ProbingRound], name: str) -> list[str]:
    spreads = [one.spread for one in seen.seen[name]]
    cells = [
        name,
        f"{seen.median(name, lambda t: t.supervisor):.1f}",
        f"{seen.median(name, lambda t: t.worker):.1f}",
        f"{seen.median(name, lambda t: t.p50):.2f}",
        f"{seen.median(name, _p99):.2f}",
        f"{100 * seen.spread(name, _p99):.0f}",
        f"{seen.median(name, lambda t: t.memory):.0f}",
        f"{sum(one.failed for one in seen.seen[name])}",
    ]
    if not any(one.rate for one in spreads):
        return [*cells, "", "", ""]
    gaps = f"{min(s.shortest for s in spreads):.1f}–{max(s.longest for s in spreads):.1f}"
    return [*cells, f"{median(s.rate for s in spreads):.0f}", gaps, f"{max(s.busiest for s in spreads)}"]


def _p99(one: ProbingRound) -> float:
    return one.p99


def verdicts(seen: Rounds[ProbingRound]) -> list[str]:
    noise = max(P99_NOISE, seen.spread(UNPROBED, _p99))
    probed = [one.spread.replicas for one in seen.seen.get(PROBED, [])]
    lines = [
        verdict(
            "supervisor, of a core", seen.median(PROBED, lambda t: t.supervisor), GOAL_SUPERVISOR_PERCENT, unit=" %"
        ),
        verdict("p99 with probing ÷ without", seen.against(PROBED, UNPROBED, _p99), round(1.0 + noise, 2)),
        f"replicas probed in each round: {', '.join(map(str, probed))}",
    ]
    lag = max((one.lag for turns in seen.seen.values() for one in turns), default=0.0)
    if lag > MAX_LAG_MS:
        lines.append(f"the benchmark itself was late by {lag:.1f} ms (p99), so latencies are not to be trusted")
    return lines
