"""One small POST through a proxy, at 1 and at 32 connections: the table of `benchmarks.overhead`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from ..load import wrk
from ..peers import PEERS, Peer
from ..testbed.procfs import core_busy
from ..testbed.rounds import Report, Rounds, ratio, verdict
from ..testbed.testbed import Proxy, Testbed

DIRECT = "direct"
CONNECTIONS = 32
GOAL_CPU_TO_HAPROXY = 1.5
GOAL_PURE_CPU_TO_HAPROXY = 2.5
GOAL_CPU_TO_ENVOY = 0.6
GOAL_ADDED_TO_HAPROXY = 1.3


@dataclass(frozen=True)
class SmallRequestResult:
    """Latencies in µs; `cpu` in µs for each request, of the proxy's whole process tree, at 32 connections."""

    one: wrk.Load
    many: wrk.Load
    cpu: float
    proxy_busy: float  # share of its core, all processes
    load_busy: float


def prepare(testbed: Testbed) -> Path:
    wrk.start_replicas(testbed.processes, testbed.ports, testbed.load_core)
    return wrk.script(testbed.processes.folder)


def measure(testbed: Testbed, peer: Peer | None, seconds: float, lua: Path) -> SmallRequestResult:
    with testbed.proxy(peer) as proxy:
        return measured(testbed, proxy, seconds, lua)


def measured(testbed: Testbed, proxy: Proxy, seconds: float, lua: Path) -> SmallRequestResult:
    wrk.load(proxy.port, CONNECTIONS, 1.0, lua)  # warm
    one = wrk.load(proxy.port, 1, seconds, lua)
    before = _clocks(testbed, proxy)
    many = wrk.load(proxy.port, CONNECTIONS, seconds, lua)
    took, spent, *busy = (now - then for now, then in zip(_clocks(testbed, proxy), before, strict=True))
    if errors := one.errors + many.errors:
        raise ConnectionError(f"{errors} of {one.requests + many.requests} requests failed")
    return SmallRequestResult(one, many, spent / many.requests * 1e6, busy[0] / took, busy[1] / took)


def _clocks(testbed: Testbed, proxy: Proxy) -> tuple[float, float, float, float]:
    """Seconds: the wall's, the proxy's, and those of the two cores."""
    spent = proxy.running.cpu_seconds() if proxy.running else 0.0
    return monotonic(), spent, core_busy(testbed.proxy_core), core_busy(testbed.load_core)


def report(seen: Rounds[SmallRequestResult]) -> Report:
    header = [
        *("proxy", "requests/s", "p50, 32", "p99, 32", "p50, 1", "p99, 1", "added p50, 1"),
        *("CPU µs/request", "± %", "× haproxy", "× envoy", "core busy"),
    ]
    rows = [row(seen, name) for name in seen.seen]
    rows += [[name, "failed", *[""] * (len(header) - 2)] for name in seen.broken]
    raw = {name: [asdict(result) for result in results] for name, results in seen.seen.items()}
    title = "One POST of 400 bytes: µs; at 32 connections and at 1; medians over rounds"
    return Report(title, header, rows, verdicts(seen), raw, seen.broken)


def row(seen: Rounds[SmallRequestResult], name: str) -> list[str]:
    latencies = [
        seen.median(name, value)
        for value in (lambda s: s.many.p50, lambda s: s.many.p99, lambda s: s.one.p50, lambda s: s.one.p99)
    ]
    cells = [name, f"{seen.median(name, lambda s: s.many.rate):,.0f}", *(f"{value:,.0f}" for value in latencies)]
    if name == DIRECT:
        return [*cells, *[""] * 6]
    return [
        *cells,
        f"{added(seen, name):,.0f}",
        f"{seen.median(name, _per_request):.1f}",
        f"{100 * seen.spread(name, _per_request):.0f}",
        ratio(seen.against(name, "haproxy", _per_request)),
        ratio(seen.against(name, "envoy", _per_request)),
        f"{seen.median(name, lambda s: s.proxy_busy):.0%}",
    ]


def _per_request(result: SmallRequestResult) -> float:
    return result.cpu


def added(seen: Rounds[SmallRequestResult], name: str) -> float:
    return seen.above(name, DIRECT, lambda s: s.one.p50)


def verdicts(seen: Rounds[SmallRequestResult]) -> list[str]:
    lines = []
    for name in seen.seen:
        if name in PEERS and PEERS[name].ours:
            goal = GOAL_PURE_CPU_TO_HAPROXY if name == "steelyard-pure" else GOAL_CPU_TO_HAPROXY
            to_haproxy, to_envoy = (seen.against(name, other, _per_request) for other in ("haproxy", "envoy"))
            lines += [
                verdict(f"{name}: CPU per request ÷ haproxy's", to_haproxy, goal),
                verdict(f"{name}: CPU per request ÷ envoy's", to_envoy, GOAL_CPU_TO_ENVOY),
                verdict(
                    f"{name}: added p50 at 1 connection ÷ haproxy's",
                    added(seen, name) / added(seen, "haproxy"),
                    GOAL_ADDED_TO_HAPROXY,
                ),
            ]
    return lines
