"""One bad replica of eight, side by side with HAProxy: failures, requests it still gets, and how soon it is noticed.

    python -m benchmarks.lifecycle [--scenarios cold,frozen] [--rounds 3] [--quick] [--peers …] [--update-docs]

The replicas are processes of their own, restarted with kill -9, frozen with SIGSTOP, or told to misbehave. The load is
open-loop and the same for every proxy. What reached a replica and when is told by the replica, not by the proxy.
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
from .mocks.faults import LOADING, SCENARIOS, Mishap, Scenario, Server, happening
from .overhead import show
from .peers import Peer, Setting
from .peers.health_checked import PROBED
from .scores.detection import Bout, Sent, Sighting, bout, sighting
from .scores.lifecycle import DETECTION, HEADER, report
from .testbed.docs_pages import DOCS, markdown_table, write_section
from .testbed.processes import Stage, StartError, free_ports
from .testbed.rounds import Report, Rounds
from .testbed.testbed import SETTLE, Lab, described

USUAL = "steelyard,haproxy,haproxy-best,haproxy-observe"
PAGE = "replicas.md"
SECTION = "benchmarks/lifecycle.py"
REPLICAS = 8
SIZES = Sizes(kind="exponential", mean=Seconds(0.025))  # the work of a request
BEFORE, AFTER = 5.0, 5.0  # seconds of load around a mishap
AHEAD = 0.2  # seconds from the plan to the first request
Chosen = TypeVar("Chosen")


@contextmanager
def fleet(lab: Lab) -> Iterator[list[Server]]:
    """New ones for each run, so that nothing is carried over."""
    servers = [Server(lab.stage, lab.load_core, port) for port in lab.ports]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.stop()


@contextmanager
def front(lab: Lab, peer: Peer) -> Iterator[int]:
    """The proxy before the fleet; its port."""
    program = peer.find()
    assert program is not None
    (listen,) = free_ports(1)
    start = peer.start(program, Setting(listen, lab.ports, lab.stage.folder))
    running = lab.stage.start(peer.name, start.command, lab.proxy_core, [listen], start.env)
    try:
        inferences.wait_until_served(running, listen)
        sleep(SETTLE)
        yield listen
    finally:
        lab.stage.stop(running)


def play(lab: Lab, peer: Peer, scenario: Scenario, lasts: float, seed: int, tick: Callable[[], None]) -> Bout:
    rate = scenario.load * REPLICAS / SIZES.mean
    todo = inferences.jobs(REPLICAS, SIZES, rate, BEFORE + lasts + AFTER, seed)
    with fleet(lab) as servers, front(lab, peer) as port:
        begin = monotonic() + AHEAD
        pairs = zip(scenario.kinds, servers, strict=False)
        mishaps = [Mishap(kind, server, begin + BEFORE, lasts) for kind, server in pairs]
        with happening(mishaps):
            outcome = inferences.run(port, begin, todo, tick)
    sent = [Sent(begin + answer.job.intended_at, answer.seconds) for answer in outcome.answers]
    sent += [Sent(begin + BEFORE, None)] * outcome.statuses["no answer"]
    since = min((mishap.began for mishap in mishaps), default=begin + BEFORE)
    return bout(sent, since, [seen(mishap, sent) for mishap in mishaps], outcome.statuses, outcome.lag)


def seen(mishap: Mishap, sent: list[Sent]) -> Sighting:
    arrivals = [when for when, what in mishap.server.seen() if what.isdigit()]
    kind, due = mishap.kind, [s.due for s in sent]
    return sighting(kind.name, arrivals, due, mishap.window(), DETECTION, kind.sudden)


def run(options: argparse.Namespace, scenarios: list[Scenario], peers: list[Peer]) -> dict[str, Rounds[Bout]]:
    """A B C A B C …, so that every proxy sees the machine in every mood."""
    results: dict[str, Rounds[Bout]] = {scenario.name: Rounds({}) for scenario in scenarios}
    with Stage() as stage, Progress() as progress:
        lab = Lab(stage, REPLICAS)
        bar = progress.add_task("", total=options.rounds * len(scenarios) * len(peers))
        for turn in range(1, options.rounds + 1):
            for scenario in scenarios:
                for peer in peers:
                    progress.update(bar, description=f"{scenario.name}, round {turn}: {peer.name}")
                    rounds = results[scenario.name]
                    if peer.name not in rounds.broken:
                        lasts = LOADING + 1.0 if scenario.name == "cold" else options.seconds
                        try:
                            rounds.add(peer.name, play(lab, peer, scenario, lasts, turn, progress.refresh))
                        except (StartError, OSError) as problem:
                            rounds.give_up(peer.name, str(problem))
                    progress.advance(bar)
    return results


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--peers", default=USUAL, help=f"of {', '.join(PROBED)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help=f"of a mishap; a restart has its own {LOADING:g}")
    parser.add_argument("--quick", action="store_true", help="one round of six seconds: does it work at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every run's figures")
    parser.add_argument("--update-docs", action="store_true", help=f"write the tables into docs/{PAGE}")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 6.0
    return options


def chosen(table: Mapping[str, Chosen], names: str) -> list[Chosen]:
    for name in names.split(","):
        if name not in table:
            raise SystemExit(f"there is no {name!r}; there are {', '.join(table)}")
    return [table[name] for name in names.split(",")]


def command(options: argparse.Namespace) -> str:
    """What gives these figures again."""
    words = ["python -m benchmarks.lifecycle"]
    usual = {"scenarios": ",".join(SCENARIOS), "peers": USUAL}
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
    scenarios = chosen(SCENARIOS, options.scenarios)
    wanted = chosen(PROBED, options.peers)
    peers = [peer for peer in wanted if peer.find() is not None]
    machine = described(command(options))
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
