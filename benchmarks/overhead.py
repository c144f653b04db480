"""What a proxy costs: requests/s, latency and CPU for one small POST, side by side with the peers that are installed.

    python -m benchmarks.overhead [--sse] [--large] [--observability] [--all] [--quick] [--peers a,b,…] [--update-docs]

Each proxy in turn has a core of its own; the load and the replicas share the other. Several rounds, one peer after the
other in each, and medians over the rounds, to even out noise. Peers are found on PATH and in the
folders of $STEELYARD_PEERS.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .overhead_cases import large_bodies, observability, small_requests, streams
from .peers import PEERS, Peer
from .testbed.docs_pages import markdown_table, write_section
from .testbed.processes import ProcessManager, StartError
from .testbed.rounds import Report, Rounds
from .testbed.testbed import Testbed, describe_with_load, installed_peers

DEFAULT_PEERS = "haproxy,haproxy-plain,nginx,envoy,smg,sglang-router,vllm-router,steelyard,steelyard-pure"
DIRECT = "direct"
R = TypeVar("R")


def interleaved(title: str, peers: list[Peer], rounds: int, measure: Callable[[Peer | None], R]) -> Rounds[R]:
    """A B C A B C …: noise hits every peer alike. A peer that fails is left out from then on."""
    seen: Rounds[R] = Rounds({})
    with Progress() as progress:
        bar = progress.add_task(title, total=rounds * (len(peers) + 1))
        for _ in range(rounds):
            for peer in (None, *peers):
                name = peer.name if peer is not None else DIRECT
                progress.update(bar, description=f"{title}: {name}")
                if name not in seen.broken:
                    try:
                        seen.add(name, measure(peer))
                    except (StartError, ConnectionError) as problem:
                        seen.give_up(name, str(problem))
                progress.advance(bar)
    return seen


def run_small(options: argparse.Namespace, peers: list[Peer]) -> Report:
    with ProcessManager() as processes:
        testbed = Testbed(processes, 4)
        lua = small_requests.prepare(testbed)
        seen = interleaved(
            "small", peers, options.rounds, lambda p: small_requests.measure(testbed, p, options.seconds, lua)
        )
    return small_requests.report(seen)


def run_observability(options: argparse.Namespace, peers: list[Peer]) -> Report:
    with ProcessManager() as processes:
        testbed = Testbed(processes, 4)
        lua = small_requests.prepare(testbed)
        ours = observability.peers(testbed, options.baseline)
        measure = observability.measure
        seen = interleaved("observability", ours, options.rounds, lambda p: measure(testbed, p, options.seconds, lua))
    return observability.report(seen)


def run_streams(options: argparse.Namespace, peers: list[Peer]) -> Report:
    with ProcessManager() as processes:
        testbed = Testbed(processes, 4)
        testbed.start_module("benchmarks.mocks.stubs")
        seen = interleaved("streams", peers, options.rounds, lambda p: streams.measure(testbed, p, options.seconds))
    return streams.report(seen)


def run_large(options: argparse.Namespace, peers: list[Peer]) -> Report:
    with ProcessManager() as processes:
        testbed = Testbed(processes, 4)
        testbed.start_module("benchmarks.mocks.stubs")
        seen = interleaved("large", peers, options.rounds, lambda p: large_bodies.measure(testbed, p, options.seconds))
    return large_bodies.report(seen)


PARTS: dict[str, Callable[[argparse.Namespace, list[Peer]], Report]] = {
    "small": run_small,
    "sse": run_streams,
    "large": run_large,
    "observability": run_observability,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sse", action="store_true", help="200 event streams instead of small requests")
    parser.add_argument("--large", action="store_true", help="bodies of 10 MiB instead of small requests")
    parser.add_argument("--all", action="store_true", help="small requests, streams, large bodies and observability")
    parser.add_argument(
        "--observability", action="store_true", help="everything that watches on, against all of it off"
    )
    parser.add_argument("--baseline", metavar="PROGRAM", help="with --observability: another build of Steelyard beside")
    parser.add_argument("--peers", default=DEFAULT_PEERS, help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="one round of one second: does it work at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every round's figures")
    parser.add_argument("--update-docs", action="store_true", help="write the tables into docs/performance.md")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    return options


def main() -> None:
    options = arguments()
    peers, missing = installed_peers(options.peers.split(","))
    wanted = [part for part in PARTS if options.all or getattr(options, part, False)] or ["small"]
    console = Console(width=150)
    raw = {}
    for part in wanted:
        flag = "" if part == "small" else f" --{part}"
        some = "" if options.peers == DEFAULT_PEERS else f" --peers {options.peers}"
        command = f"python -m benchmarks.overhead{flag} --rounds {options.rounds} --seconds {options.seconds:g}{some}"
        machine = describe_with_load(command, PEERS["steelyard"].find())
        report = PARTS[part](options, peers)
        if part != "observability":
            report.rows += [[name, "not installed", *[""] * (len(report.header) - 2)] for name in missing]
        show(console, report, machine)
        raw[part] = {"machine": machine, "rounds": report.raw, "broken": report.broken}
        if options.update_docs:
            write_section("performance.md", f"benchmarks/overhead.py{flag}", markdown(report, machine))
    if options.json is not None:
        options.json.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")


def show(console: Console, report: Report, machine: str) -> None:
    table = Table(title=report.title)
    for place, name in enumerate(report.header):
        table.add_column(name, justify="right" if place else "left")
    for row in report.rows:
        table.add_row(*row)
    console.print(table)
    for line in report.verdicts:
        console.print(line, markup=False, highlight=False)
    for name, problem in report.broken.items():
        console.print(f"{name}: {problem}", markup=False, highlight=False)
    console.print(machine, markup=False, highlight=False)


def markdown(report: Report, machine: str) -> str:
    lines = [f"Measured {machine}.", "", markdown_table(report.header, report.rows), ""]
    return "\n".join([*lines, *(f"- {line}" for line in report.verdicts)])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
