"""Text-generating engines behind real sockets: Steelyard, routers for engines and general proxies, same conversations.

    python -m benchmarks.engine_arena [--mixes tools,conversations] [--fleets equal,uneven] [--load 0.85]
        [--engines 8] [--speed 0.25] [--requests 1000] [--seeds 2] [--quick] [--peers …] [--update-docs]

Each engine is a process (benchmarks/mocks/engine_replica.py): the simulator's engine by the clock. `--speed` slows the
engines, and with them all the rest, until one machine can carry them. Runs in which the generator or the engines were
late are discarded, as in `benchmarks.arena`. Each run has a new proxy and engines with empty caches.
The arrivals alone take an hour and a half as it stands.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import msgspec
from rich.console import Console
from rich.progress import Progress

from steelyard.documents import Seconds
from steelyard.simulate.llm.conversations import ConversationSource, conversation_mix
from steelyard.simulate.llm.model import find_engine
from steelyard.simulate.scenario.conversations import Conversations
from steelyard.simulate.scenario.engine_catalog import MIXES

from .load import conversation_load
from .mocks.engine_replica import CONTROL_PATH, EngineKind
from .peers import PEERS, Peer
from .scores.engine_arena import OURS, EngineScores, Run
from .testbed.docs_pages import write_section
from .testbed.processes import ProcessManager, StartError
from .testbed.testbed import Testbed, describe_with_load, installed_peers

DEFAULT_PEERS = f"nginx,haproxy,smg-cache-aware,vllm-router-cache-aware,{OURS}"
FLEETS = {"equal": ("8b-h100",), "uneven": ("8b-h100", "8b-a100")}  # the engines take turns
WARMUP_SHARE = 0.2
MAX_RUNS = 3  # of a run, while the benchmark itself is late
LEAD_SECONDS = 0.5


@dataclass(frozen=True)
class EngineContest:
    mix: str
    fleet: str
    load: float
    engines: int
    speed: float

    @property
    def title(self) -> str:
        counts = {kind.engine: sum(k.engine == kind.engine for k in self.kinds) for kind in self.kinds}
        fleet = " + ".join(f"{count} × {engine}" for engine, count in counts.items())
        return f"{self.mix}, {fleet}, {self.load:.0%}"

    @property
    def kinds(self) -> tuple[EngineKind, ...]:
        names = FLEETS[self.fleet]
        return tuple(EngineKind(names[place * len(names) // self.engines], self.speed) for place in range(self.engines))

    @property
    def spec(self) -> Conversations:
        """Slower engines, and people who think as much longer: the same in slow motion."""
        spec = MIXES[self.mix][0]
        return msgspec.structs.replace(spec, think=Seconds(spec.think / self.speed))

    @property
    def rate(self) -> float:
        """Requests a second."""
        mix, hits = conversation_mix(self.spec)[0], MIXES[self.mix][2]
        capacity = sum(find_engine(kind.engine).requests_per_second(mix, hits) * kind.speed for kind in self.kinds)
        return self.load * capacity


def reset(port: int, kind: EngineKind) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    connection.request("POST", CONTROL_PATH.decode(), msgspec.json.encode(kind))
    assert connection.getresponse().status == 200
    connection.close()


def start_engines(testbed: Testbed) -> None:
    for port in testbed.ports:
        command = [sys.executable, "-m", "benchmarks.mocks.engine_replica", str(port)]
        testbed.processes.start(f"engine-{port}", command, testbed.load_core, [port])


def run_once(
    testbed: Testbed, peer: Peer, contest: EngineContest, seed: int, requests: int, tick: Callable[[], None]
) -> Run:
    for port, kind in zip(testbed.ports, contest.kinds, strict=True):
        reset(port, kind)
    with testbed.proxy(peer, streaming=True) as proxy:
        source = ConversationSource(contest.spec, requests, contest.rate, seed)
        outcome = conversation_load.run(proxy.port, monotonic() + LEAD_SECONDS, source, seed, tick)
    return Run.of(outcome, WARMUP_SHARE * requests / contest.rate)


def measure(
    testbed: Testbed,
    peer: Peer,
    contest: EngineContest,
    seed: int,
    requests: int,
    scores: EngineScores,
    tick: Callable[[], None],
) -> None:
    for _ in range(MAX_RUNS):
        try:
            run = run_once(testbed, peer, contest, seed, requests, tick)
        except (StartError, OSError) as problem:
            scores.broken[peer.name] = str(problem)
            return
        scores.add(contest.title, peer.name, run)
        if run.valid:
            break


def run_all(
    options: argparse.Namespace, contests: list[EngineContest], peers: list[Peer], scores: EngineScores
) -> None:
    seconds = {contest: options.requests / contest.rate for contest in contests}
    with ProcessManager() as processes, Progress() as progress:
        testbed = Testbed(processes, options.engines)
        start_engines(testbed)
        bar = progress.add_task("", total=sum(seconds.values()) * options.seeds * len(peers))
        for contest in contests:
            for seed in range(1, options.seeds + 1):
                for peer in peers:
                    progress.update(bar, description=f"{contest.title}, seed {seed}: {peer.name}")
                    if peer.name not in scores.broken:
                        measure(testbed, peer, contest, seed, options.requests, scores, progress.refresh)
                    progress.advance(bar, seconds[contest])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mixes", default="tools,conversations", help=f"of {', '.join(MIXES)}")
    parser.add_argument("--fleets", default="equal,uneven", help=f"of {', '.join(FLEETS)}")
    parser.add_argument("--load", type=float, default=0.85, help="share of what the engines can do")
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--speed", type=float, default=0.25, help="1: as the hardware that they are named by")
    parser.add_argument("--peers", default=DEFAULT_PEERS, help=f"of {', '.join(PEERS)}")
    parser.add_argument("--requests", type=int, default=1000, help="of each run")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one seed of 150 requests: does it work at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every run's figures")
    parser.add_argument("--update-docs", action="store_true", help="write the tables into docs/performance.md")
    options = parser.parse_args()
    if options.quick:
        options.requests, options.seeds = 150, 1
    return options


def wanted(options: argparse.Namespace) -> list[EngineContest]:
    mixes, fleets = options.mixes.split(","), options.fleets.split(",")
    for names, known in ((mixes, list(MIXES)), (fleets, list(FLEETS))):
        for name in names:
            if name not in known:
                raise SystemExit(f"no {name!r}; there are {', '.join(known)}")
    return [
        EngineContest(mix, fleet, options.load, options.engines, options.speed) for mix in mixes for fleet in fleets
    ]


def command_of(options: argparse.Namespace) -> str:
    names = ("mixes", "fleets", "load", "engines", "speed", "requests", "seeds", "peers")
    return " ".join(["python -m benchmarks.engine_arena", *(f"--{name} {getattr(options, name)}" for name in names)])


def main() -> None:
    options = arguments()
    contests = wanted(options)
    peers, missing = installed_peers(options.peers.split(","))
    machine = describe_with_load(command_of(options), PEERS[OURS].find())
    scores = EngineScores([peer.name for peer in peers], missing)
    run_all(options, contests, peers, scores)
    tables = scores.markdown([(contest.title, contest.fleet == "uneven") for contest in contests])
    text = f"Measured {machine}. Engines at {options.speed:g} × their speed.\n{tables}"
    Console(width=150).print(text, markup=False, highlight=False)
    if options.json is not None:
        raw = {"machine": machine, "runs": scores.raw(), "broken": scores.broken}
        options.json.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    if options.update_docs:
        write_section("performance.md", "benchmarks/engine_arena.py", text)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
