"""Routing on real sockets, side by side with the peers: W1–W4 and W8 with p50, p99, p99.9, goodput and failures.

    python -m benchmarks.arena [--contests W1,W3] [--requests 4000] [--seeds 3] [--quick] [--peers …] [--update-docs]
    python -m benchmarks.arena --contests W1,W3 --peers steelyard-queue --workers 1,4,8 --seeds 5

Every proxy gets the same requests at the same times (the simulator's, same seeds). The replicas mock a model server's
service time (benchmarks/mocks/timed_replicas.py). Runs with a late load generator are discarded.
"""

from __future__ import annotations

import argparse
import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import Progress

from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.run import IDEAL, Task, run_task
from steelyard.simulate.workload.generator import random_jobs

from .load import open_loop
from .load.contests import CONTESTS, Contest
from .mocks.timed_replicas import CONTROL_PATH, Plan
from .peers import PEERS, Peer
from .scores.arena import MAX_LAG_SECONDS, Scores
from .testbed.docs_pages import write_section
from .testbed.processes import ProcessManager, StartError
from .testbed.testbed import Proxy, Testbed, describe_with_load, installed_peers

DEFAULT_PEERS = "nginx,haproxy,haproxy-queue,envoy,smg,vllm-router,steelyard-connections,steelyard-queue"
DEFAULT_CONTESTS = "W1,W2,W3,W4,W8"
REPLICAS = 16
MAX_RUNS = 3  # of a run, while the benchmark itself is late
LEAD_SECONDS = 0.5  # from the plan to the first request


def send_plan(port: int, plan: Plan) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    connection.request("POST", CONTROL_PATH.decode(), msgspec.json.encode(plan))
    assert connection.getresponse().status == 200
    connection.close()


def run_contest(
    testbed: Testbed, proxy: Proxy, contest: Contest, seed: int, progress: Callable[[], None]
) -> open_loop.Outcome:
    scenario = contest.scenario
    begin = monotonic() + LEAD_SECONDS
    send_plan(testbed.ports[0], Plan.of(scenario, begin))
    return open_loop.run(proxy.port, begin, random_jobs(scenario, contest.rate, seed), progress)


def result_of(contest: Contest, peer: str, seed: int, outcome: open_loop.Outcome) -> RunResult:
    """As the simulator counts: after the warm-up, which is for learning, and goodput within three times the work."""
    scenario = contest.scenario
    result = RunResult(scenario.name, peer, contest.load, seed, requests=scenario.requests)
    result.seconds = scenario.requests / contest.rate
    warmup = scenario.warmup * result.seconds
    for answer in outcome.answers:
        if answer.job.intended_at < warmup:
            continue
        if answer.seconds is None:
            result.failed += 1
        else:
            result.latency.add(answer.seconds)
            result.low_slowdown += answer.seconds <= 3.0 * answer.job.work
    result.failed += outcome.statuses["no answer"]
    result.served = {f"r{place}": count for place, count in sorted(outcome.replicas.items())}
    return result


@dataclass(frozen=True)
class Entrant:
    peer: Peer
    workers: int

    @property
    def name(self) -> str:
        return self.peer.name if self.workers == 1 else f"{self.peer.name}, {self.workers} workers"


def run(options: argparse.Namespace, contests: list[Contest], entrants: list[Entrant], scores: Scores) -> None:
    total = sum(c.scenario.requests / c.rate for c in contests) * options.seeds * len(entrants)
    with ProcessManager() as processes, Progress() as progress:
        testbed = Testbed(processes, REPLICAS)
        testbed.start_module("benchmarks.mocks.timed_replicas")
        bar = progress.add_task("", total=total)
        for contest in contests:
            for seed in range(1, options.seeds + 1):
                scores.add(run_task(Task(contest.scenario, IDEAL, contest.load, seed)))
                for entrant in entrants:
                    seconds = contest.scenario.requests / contest.rate
                    progress.update(bar, description=f"{contest.title}, seed {seed}: {entrant.name}")
                    if entrant.name not in scores.broken:
                        measure(testbed, entrant, contest, seed, scores, progress.refresh)
                    progress.advance(bar, seconds)


def measure(
    testbed: Testbed, entrant: Entrant, contest: Contest, seed: int, scores: Scores, tick: Callable[[], None]
) -> None:
    """One proxy, one contest, one seed; a proxy that has just been started, so that nothing learned is carried over."""
    send_plan(testbed.ports[0], Plan(()))
    count = sum(group.count for group in contest.scenario.fleet)
    for _ in range(MAX_RUNS):
        try:
            with testbed.proxy(entrant.peer, count, workers=entrant.workers) as proxy:
                outcome = run_contest(testbed, proxy, contest, seed, tick)
        except (StartError, OSError) as problem:
            scores.broken[entrant.name] = str(problem)
            return
        if outcome.lag <= MAX_LAG_SECONDS:
            break
    scores.add(result_of(contest, entrant.name, seed, outcome), outcome.lag, dict(outcome.statuses))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--contests", default=DEFAULT_CONTESTS, help=f"of {', '.join(CONTESTS)}")
    parser.add_argument("--peers", default=DEFAULT_PEERS, help=f"of {', '.join(PEERS)}")
    parser.add_argument("--requests", type=int, default=4000, help="of each run, at least")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", default="1", help="of each proxy that has workers; several: 1,4,8")
    parser.add_argument("--quick", action="store_true", help="one seed of 500 requests: does it work at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every run's figures")
    parser.add_argument(
        "--update-docs", action="store_true", help="write the tables into docs/performance.md; W1 … only"
    )
    options = parser.parse_args()
    if options.quick:
        options.requests, options.seeds = 500, 1
    return options


def wanted(names: str, requests: int) -> list[Contest]:
    installed_peers = []
    for name in names.split(","):
        if name not in CONTESTS:
            raise SystemExit(f"no contest {name!r}; there are {', '.join(CONTESTS)}")
        installed_peers += [
            contest.of(requests) for contest in CONTESTS[name] if contest.of(requests) not in installed_peers
        ]
    return installed_peers


def main() -> None:
    options = arguments()
    peers, missing = installed_peers(options.peers.split(","))
    contests = wanted(options.contests, options.requests)
    command = f"python -m benchmarks.arena --contests {options.contests} --requests {options.requests}"
    command += f" --seeds {options.seeds}"
    command += "" if options.peers == DEFAULT_PEERS else f" --peers {options.peers}"
    command += "" if options.workers == "1" else f" --workers {options.workers}"
    machine = describe_with_load(command, PEERS["steelyard"].find())
    entrants = [Entrant(peer, workers) for peer in peers for workers in map(int, options.workers.split(","))]
    scores = Scores([entrant.name for entrant in entrants], missing)
    run(options, contests, entrants, scores)
    console = Console(width=140)
    scores.show(console, contests)
    console.print(machine, markup=False, highlight=False)
    if options.json is not None:
        raw: dict[str, Any] = {"machine": machine, "runs": scores.raw(), "broken": scores.broken}
        options.json.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    for name in options.contests.split(",") if options.update_docs else ():
        text = f"Measured {machine}.\n{scores.markdown([c for c in contests if c in wanted(name, options.requests)])}"
        write_section("performance.md", f"benchmarks/arena.py {name}", text)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
