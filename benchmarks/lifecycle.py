"""One bad replica of eight, side by side with HAProxy: failures, requests it still gets, and how soon it is noticed.

    python -m benchmarks.lifecycle [--scenarios cold,frozen] [--rounds 3] [--quick] [--peers …] [--update-docs]

The replicas are processes of their own, restarted with kill -9, frozen with SIGSTOP, or made to misbehave. The load is
open-loop and the same for every proxy. Replicas record what reached them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

from steelyard.documents import Seconds
from steelyard.simulate.scenario.schema import Sizes

from .load import inferences
from .mocks.faults import LOADING_SECONDS, SCENARIOS, ReplicaProcess, Scenario, ScheduledFault, scheduled
from .overhead import show
from .peers import Peer, Setting
from .peers.health_checked import HEALTH_CHECKED_PEERS
from .scores.detection import FaultObservation, FaultRun, SentRequest, fault_run, observe_fault
from .scores.lifecycle import GOAL_DETECTION_SECONDS, HEADER, report
from .testbed.docs_pages import DOCS, markdown_table, write_section
from .testbed.processes import ProcessManager, StartError, free_ports
from .testbed.rounds import Report, Rounds
from .testbed.testbed import SETTLE_SECONDS, Testbed, describe_with_load

DEFAULT_PEERS = "steelyard,haproxy,haproxy-best,haproxy-observe"
PAGE = "replicas.md"
SECTION = "benchmarks/lifecycle.py"
REPLICAS = 8
REQUEST_SIZES = Sizes(kind="exponential", mean=Seconds(0.025))  # the work of a request
SECONDS_BEFORE, SECONDS_AFTER = 5.0, 5.0  # of load around a fault
LEAD_SECONDS = 0.2  # from the plan to the first request
Chosen = TypeVar("Chosen")


@contextmanager
def fleet(testbed: Testbed) -> Iterator[list[ReplicaProcess]]:
    """New ones for each run, so that nothing is carried over."""
    servers = [ReplicaProcess(testbed.processes, testbed.load_core, port) for port in testbed.ports]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.stop()


@contextmanager
def front(testbed: Testbed, peer: Peer) -> Iterator[int]:
    """The proxy before the fleet; its port."""
    program = peer.find()
    assert program is not None
    (listen,) = free_ports(1)
    start = peer.start(program, Setting(listen, testbed.ports, testbed.processes.folder))
    running = testbed.processes.start(peer.name, start.command, testbed.proxy_core, [listen], start.env)
    try:
        inferences.wait_until_served(running, listen)
        sleep(SETTLE_SECONDS)
        yield listen
    finally:
        testbed.processes.stop(running)


def measure(
    testbed: Testbed, peer: Peer, scenario: Scenario, lasts: float, seed: int, tick: Callable[[], None]
) -> FaultRun:
    rate = scenario.load * REPLICAS / REQUEST_SIZES.mean
    todo = inferences.jobs(REPLICAS, REQUEST_SIZES, rate, SECONDS_BEFORE + lasts + SECONDS_AFTER, seed)
    with fleet(testbed) as servers, front(testbed, peer) as port:
        begin = monotonic() + LEAD_SECONDS
        pairs = zip(scenario.kinds, servers, strict=False)
        faults = [ScheduledFault(kind, server, begin + SECONDS_BEFORE, lasts) for kind, server in pairs]
        with scheduled(faults):
            outcome = inferences.run(port, begin, todo, tick)
    sent = [SentRequest(begin + answer.job.intended_at, answer.seconds) for answer in outcome.answers]
    sent += [SentRequest(begin + SECONDS_BEFORE, None)] * outcome.statuses["no answer"]
    since = min((fault.began for fault in faults), default=begin + SECONDS_BEFORE)
    return fault_run(sent, since, [observed(fault, sent) for fault in faults], outcome.statuses, outcome.lag)


def observed(fault: ScheduledFault, sent: list[SentRequest]) -> FaultObservation:
    arrivals = [when for when, what in fault.server.seen() if what.isdigit()]
    kind, due = fault.kind, [s.due for s in sent]
    return observe_fault(kind.name, arrivals, due, fault.window(), GOAL_DETECTION_SECONDS, kind.sudden)


def run(options: argparse.Namespace, scenarios: list[Scenario], peers: list[Peer]) -> dict[str, Rounds[FaultRun]]:
    """A B C A B C …, so that noise hits every proxy alike."""
    results: dict[str, Rounds[FaultRun]] = {scenario.name: Rounds({}) for scenario in scenarios}
    with ProcessManager() as processes, Progress() as progress:
        testbed = Testbed(processes, REPLICAS)
        bar = progress.add_task("", total=options.rounds * len(scenarios) * len(peers))
        for turn in range(1, options.rounds + 1):
            for scenario in scenarios:
                for peer in peers:
                    progress.update(bar, description=f"{scenario.name}, round {turn}: {peer.name}")
                    rounds = results[scenario.name]
                    if peer.name not in rounds.broken:
                        lasts = LOADING_SECONDS + 1.0 if scenario.name == "cold" else options.seconds
                        try:
                            rounds.add(peer.name, measure(testbed, peer, scenario, lasts, turn, progress.refresh))
                        except (StartError, OSError) as problem:
                            rounds.give_up(peer.name, str(problem))
                    progress.advance(bar)
    return results


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--peers", default=DEFAULT_PEERS, help=f"of {', '.join(HEALTH_CHECKED_PEERS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help=f"of a fault; a restart has its own {LOADING_SECONDS:g}"
    )
    parser.add_argument("--quick", action="store_true", help="one round of six seconds: does it work at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every run's figures")
    parser.add_argument("--update-docs", action="store_true", help=f"write the tables into docs/{PAGE}")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 6.0
    return options


def select(table: Mapping[str, Chosen], names: str) -> list[Chosen]:
    for name in names.split(","):
        if name not in table:
            raise SystemExit(f"there is no {name!r}; there are {', '.join(table)}")
    return [table[name] for name in names.split(",")]


def command(options: argparse.Namespace) -> str:
    """Reproduces these figures."""
    words = ["python -m benchmarks.lifecycle"]
    usual = {"scenarios": ",".join(SCENARIOS), "peers": DEFAULT_PEERS}
    words += [f"--{name} {getattr(options, name)}" for name in usual if getattr(options, name) != usual[name]]
    return " ".join([*words, f"--rounds {options.rounds} --seconds {options.seconds:g}"])


def check_page(name: str) -> None:
    """Before half an hour of measuring: is there a place for what it will say?"""
    page = DOCS / PAGE
    if not page.exists() or f"<!-- begin: {name} -->" not in page.read_text(encoding="utf-8"):
        raise SystemExit(f"docs/{PAGE} has no section `<!-- begin: {name} -->` … `<!-- end: {name} -->` to write to")


def main() -> None:
    options = arguments()
    if options.update_docs:
        check_page(SECTION)
    scenarios = select(SCENARIOS, options.scenarios)
    wanted = select(HEALTH_CHECKED_PEERS, options.peers)
    peers = [peer for peer in wanted if peer.find() is not None]
    machine = describe_with_load(command(options))
    results = run(options, scenarios, peers)
    reports = [report(scenario, results[scenario.name]) for scenario in scenarios]
    console = Console(width=140)
    for one in reports:
        one.rows += [[peer.name, "not installed", *[""] * (len(HEADER) - 2)] for peer in wanted if peer not in peers]
        show(console, one, machine)
    if options.json is not None:
        runs = {scenario.name: one.raw for scenario, one in zip(scenarios, reports, strict=True)}
        options.json.write_text(json.dumps({"machine": machine, "runs": runs}, indent=1) + "\n", encoding="utf-8")
    if options.update_docs:
        write_section(PAGE, SECTION, markdown(reports, machine))


def markdown(reports: list[Report], machine: str) -> str:
    parts = [f"Measured {machine}."]
    for one in reports:
        parts += ["", f"**{one.title}**", "", markdown_table(one.header, one.rows), ""]
        parts += [f"- {line}" for line in one.verdicts]
    return "\n".join(parts)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
