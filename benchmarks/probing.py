"""What probing 2,000 replicas costs: the supervisor's share of a core, and whether requests feel it.

    python -m benchmarks.probing [--replicas 2000] [--interval 5] [--seconds 30] [--rounds 5] [--quick] [--update-docs]

Steelyard in front of 2,000 stub sockets, in turns with probing and without, under the same light load. The supervisor
and the worker share a core, the stubs and the load the other: with more cores they would disturb each other less.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import nan
from pathlib import Path
from statistics import median
from time import monotonic, sleep

import msgspec
from rich.console import Console
from rich.progress import Progress

from steelyard.documents import Seconds
from steelyard.simulate.scenario.schema import Sizes

from .lifecycle import PAGE, check_page
from .load import inferences
from .load.open_loop import p99
from .mocks.stub_fleet import CONTROL_HOST, PROBES_PATH, address
from .overhead import markdown, show
from .peers import Setting
from .peers.health_checked import ProbedSteelyard
from .scores.probe_spread import spread
from .scores.probing import PROBED, UNPROBED, ProbingRound, report
from .testbed.docs_pages import write_section
from .testbed.processes import ManagedProcess, ProcessManager, StartError, free_ports
from .testbed.procfs import cpu_seconds, memory
from .testbed.rounds import Rounds
from .testbed.testbed import Testbed, describe_with_load

SECTION = "benchmarks/probing.py"
REQUEST_SIZES = Sizes(kind="constant", mean=Seconds(1e-6))  # answered at once: any delay is the gateway's


@contextmanager
def front(testbed: Testbed, options: argparse.Namespace, name: str, port: int) -> Iterator[tuple[ManagedProcess, int]]:
    health = {"enabled": name == PROBED, "interval": f"{options.interval:g}s"}
    peer = ProbedSteelyard(name.replace(" ", "-"), health)
    program = peer.find()
    assert program is not None
    (listen,) = free_ports(1)
    urls = [f"http://{address(place)}:{port}" for place in range(options.replicas)]
    start = peer.before(program, Setting(listen, (), testbed.processes.folder), urls)
    running = testbed.processes.start(peer.name, start.command, testbed.proxy_core, [listen])
    try:
        inferences.wait_until_served(running, listen)
        yield running, listen
    finally:
        testbed.processes.stop(running)


def measure(
    testbed: Testbed, options: argparse.Namespace, name: str, port: int, seed: int, tick: Progress
) -> ProbingRound:
    with front(testbed, options, name, port) as (running, listen):
        sleep(options.settle)
        probes(port)
        supervisor, *workers = running.pids()
        before = (monotonic(), cpu_seconds(supervisor), sum(map(cpu_seconds, workers)))
        todo = inferences.jobs(options.replicas, REQUEST_SIZES, options.rate, options.seconds, seed)
        outcome = inferences.run(listen, monotonic() + 0.2, todo, tick.refresh)
        after = (monotonic(), cpu_seconds(supervisor), sum(map(cpu_seconds, workers)))
        seconds, own, theirs = (now - then for now, then in zip(after, before, strict=True))
        times = [1000.0 * answer.seconds for answer in outcome.answers if answer.seconds is not None]
        return ProbingRound(
            supervisor=100.0 * own / seconds,
            worker=100.0 * theirs / seconds,
            memory=memory(supervisor, "VmRSS") / 2**20,
            p50=median(times) if times else nan,
            p99=p99(times),
            failed=outcome.statuses.total(),
            lag=1000.0 * outcome.lag,
            spread=spread(probes(port), before[0], after[0]),
        )


def probes(port: int) -> list[tuple[float, str]]:
    """Since last asked."""
    connection = http.client.HTTPConnection(CONTROL_HOST, port, timeout=10.0)
    try:
        connection.request("GET", PROBES_PATH.decode())
        return msgspec.json.decode(connection.getresponse().read(), type=list[tuple[float, str]])
    finally:
        connection.close()


def run(options: argparse.Namespace) -> Rounds[ProbingRound]:
    seen: Rounds[ProbingRound] = Rounds({})
    with ProcessManager() as processes, Progress() as progress:
        testbed = Testbed(processes, 0)
        (port,) = free_ports(1)
        crowd = [sys.executable, "-m", "benchmarks.mocks.stub_fleet", str(port), str(options.replicas)]
        processes.start("crowd", crowd, testbed.load_core, [port])
        bar = progress.add_task("", total=2 * options.rounds)
        for seed in range(1, options.rounds + 1):
            for name in (PROBED, UNPROBED):
                progress.update(bar, description=f"round {seed}: {name}")
                if name not in seen.broken:
                    try:
                        seen.add(name, measure(testbed, options, name, port, seed, progress))
                    except (StartError, OSError) as problem:
                        seen.give_up(name, str(problem))
                progress.advance(bar)
    return seen


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--replicas", type=int, default=2000)
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two probes of a replica")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--settle", type=float, default=10.0, help="seconds before each measurement")
    parser.add_argument("--quick", action="store_true", help="one round of six seconds: does it work at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every round's figures")
    parser.add_argument("--update-docs", action="store_true", help=f"write the table into docs/{PAGE}")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.settle = 1, 6.0, 3.0
    return options


def main() -> None:
    options = arguments()
    if options.update_docs:
        check_page(SECTION)
    words = (f"--{name} {getattr(options, name):g}" for name in ("replicas", "interval", "rate", "rounds", "seconds"))
    machine = describe_with_load(" ".join(["python -m benchmarks.probing", *words]))
    title = f"{options.replicas:,} replicas, probed every {options.interval:g} s; {options.rate:g} requests/s"
    result = report(title, run(options))
    show(Console(width=150), result, machine)
    if options.json is not None:
        raw = {"machine": machine, "rounds": result.raw, "broken": result.broken}
        options.json.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    if options.update_docs:
        write_section(PAGE, SECTION, markdown(result, machine))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
