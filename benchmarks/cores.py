"""More cores: requests/s and CPU per request with 1, 2, 4, 8 workers, beside HAProxy and nginx with as many.

    python -m benchmarks.cores [--workers 1,2,4,8] [--replicas 4,64] [--peers …] [--rounds 3] [--update-docs]

The proxy has as many cores as workers; the load (wrk) has half of the others, the replicas (nginx) the rest. Needs
4 cores at least. Numbers of workers for which the machine is too small are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Set
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from .load import wrk
from .overhead import markdown, show
from .peers import PEERS, Peer, Setting
from .testbed.docs_pages import write_section
from .testbed.processes import ManagedProcess, ProcessManager, StartError, free_ports, raise_priority
from .testbed.procfs import cpu_seconds, threads_seconds
from .testbed.rounds import Report, Rounds, ratio, verdict
from .testbed.testbed import describe_with_load, installed_peers, wait_until_answering

DEFAULT_PEERS = "haproxy,nginx,steelyard"
CONNECTIONS_PER_WORKER = 32  # for each worker
MIN_CORES = 4
GOAL_SPEED_UP = {8: 5.5}  # times one worker's requests/s
GOAL_CPU_RATIO = 1.15  # CPU per request with the most replicas ÷ with the fewest
GOAL_SUPERVISOR_CORES = 0.02  # of a core


@dataclass(frozen=True, order=True)
class Case:
    peer: str
    replicas: int
    workers: int


@dataclass(frozen=True)
class LoadResult:
    rate: float
    cpu: float  # µs for each request, all processes
    p99: float  # µs
    first: float  # share of a core that the first process used: the supervisor, a master, or all of it
    busiest: float  # share of a core that the busiest thread used: near 1, it is the limit


@dataclass(frozen=True)
class Cores:
    proxy: Set[int]
    load: Set[int]
    replicas: Set[int]


def share_out(available: list[int], workers: int) -> Cores | None:
    """None: too few."""
    rest = available[workers:]
    if len(rest) < 2:
        return None
    half = (len(rest) + 1) // 2
    return Cores(set(available[:workers]), set(rest[:half]), set(rest[half:]))


def measure(cores: Cores, peer: Peer, case: Case, seconds: float) -> LoadResult:
    with ProcessManager() as processes:
        ports = tuple(free_ports(case.replicas))
        wrk.start_replicas(processes, ports, cores.replicas)
        lua = wrk.script(processes.folder)
        listen, *extra = free_ports(3)
        program = peer.find()
        assert program is not None
        setting = Setting(listen, ports, processes.folder, workers=case.workers, extra=tuple(extra))
        start = peer.start(program, setting)
        running = processes.start(peer.name, start.command, cores.proxy, [listen], start.env)
        wait_until_answering(running, listen)
        os.sched_setaffinity(0, cores.load)
        return under_load(running, listen, case.workers, len(cores.load), seconds, lua)


def under_load(running: ManagedProcess, port: int, workers: int, threads: int, seconds: float, lua: Path) -> LoadResult:
    connections = CONNECTIONS_PER_WORKER * workers
    threads = min(threads, connections)
    wrk.load(port, connections, 1.0, lua, threads)  # warm
    before, first, each = running.cpu_seconds(), cpu_seconds(running.process.pid), threads_seconds(running.pids())
    load = wrk.load(port, connections, seconds, lua, threads)
    if load.errors:
        raise ConnectionError(f"{load.errors} of {load.requests} requests failed")
    spent = running.cpu_seconds() - before
    of_first = cpu_seconds(running.process.pid) - first
    busiest = max(spent - each.get(thread, 0.0) for thread, spent in threads_seconds(running.pids()).items())
    return LoadResult(load.rate, spent / load.requests * 1e6, load.p99, of_first / load.seconds, busiest / load.seconds)


def run(cases: list[tuple[Case, Cores]], rounds: int, seconds: float) -> Rounds[LoadResult]:
    seen: Rounds[LoadResult] = Rounds({})
    everywhere = os.sched_getaffinity(0)
    with Progress() as progress:
        bar = progress.add_task("cores", total=rounds * len(cases))
        for _ in range(rounds):
            for case, cores in cases:
                progress.update(bar, description=name_of(case))
                if name_of(case) not in seen.broken:
                    try:
                        seen.add(name_of(case), measure(cores, PEERS[case.peer], case, seconds))
                    except (StartError, ConnectionError) as problem:
                        seen.give_up(name_of(case), str(problem))
                    finally:
                        os.sched_setaffinity(0, everywhere)
                progress.advance(bar)
    return seen


def name_of(case: Case) -> str:
    return f"{case.peer}, {case.workers} workers, {case.replicas} replicas"


def report(seen: Rounds[LoadResult], cases: list[Case]) -> Report:
    header = [
        "proxy",
        "workers",
        "replicas",
        "requests/s",
        "× one worker",
        "CPU µs/request",
        "± %",
        "p99 µs",
        "busiest thread",
    ]
    rows = []
    for case in cases:
        name, one = name_of(case), name_of(Case(case.peer, case.replicas, 1))
        cells = [case.peer, str(case.workers), str(case.replicas)]
        if name in seen.broken:
            rows.append([*cells, "failed", *[""] * 5])
            continue
        rows.append(
            [
                *cells,
                f"{seen.median(name, _rate):,.0f}",
                ratio(seen.against(name, one, _rate)),
                f"{seen.median(name, _cpu):.1f}",
                f"{100 * seen.spread(name, _cpu):.0f}",
                f"{seen.median(name, lambda s: s.p99):,.0f}",
                f"{seen.median(name, lambda s: s.busiest):.2f}",
            ]
        )
    raw = {name: [asdict(result) for result in results] for name, results in seen.seen.items()}
    title = "One POST of 400 bytes, 32 connections for each worker; medians over rounds"
    return Report(title, header, rows, verdicts(seen, cases), raw, seen.broken)


def _rate(seen: LoadResult) -> float:
    return seen.rate


def _cpu(seen: LoadResult) -> float:
    return seen.cpu


def verdicts(seen: Rounds[LoadResult], cases: list[Case]) -> list[str]:
    lines = []
    fewest = min(case.replicas for case in cases)
    for case in cases:
        if not PEERS[case.peer].ours:
            continue
        name = name_of(case)
        if case.workers in GOAL_SPEED_UP and case.replicas == fewest:
            times = seen.against(name, name_of(Case(case.peer, fewest, 1)), _rate)
            lines.append(verdict(f"{name}: requests/s ÷ one worker's", times, GOAL_SPEED_UP[case.workers], least=True))
        if case.replicas > fewest:
            more = seen.against(name, name_of(Case(case.peer, fewest, case.workers)), _cpu)
            lines.append(verdict(f"{name}: CPU per request ÷ with {fewest}", more, GOAL_CPU_RATIO))
        if case.workers > 1:
            lines.append(
                verdict(f"{name}: supervisor, of a core", seen.median(name, lambda s: s.first), GOAL_SUPERVISOR_CORES)
            )
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--replicas", default="4,64")
    parser.add_argument("--peers", default=DEFAULT_PEERS, help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every round's figures")
    parser.add_argument("--update-docs", action="store_true", help="write the table into docs/performance.md")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    available = sorted(os.sched_getaffinity(0))
    if len(available) < MIN_CORES:
        raise SystemExit(
            f"needs at least {MIN_CORES} cores: the proxy's, the load's and the replicas'; {len(available)} here"
        )
    console = Console(width=150)
    peers, missing = installed_peers(options.peers.split(","))
    cases = []
    for workers in map(int, options.workers.split(",")):
        cores = share_out(available, workers)
        if cores is None:
            console.print(f"{workers} workers are left out: {len(available)} cores are too few")
            continue
        cases += [(Case(p.name, int(n), workers), cores) for n in options.replicas.split(",") for p in peers]
    for name in missing:
        console.print(f"{name} is not installed")
    raise_priority(os.getpid())
    command = f"python -m benchmarks.cores --workers {options.workers} --replicas {options.replicas}"
    command += f" --rounds {options.rounds} --seconds {options.seconds:g}"
    machine = describe_with_load(command, PEERS["steelyard"].find())
    result = report(run(cases, options.rounds, options.seconds), sorted(case for case, _ in cases))
    show(console, result, machine)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine, "rounds": result.raw, "broken": result.broken}) + "\n")
    if options.update_docs:
        write_section("performance.md", "benchmarks/cores.py", markdown(result, machine))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
