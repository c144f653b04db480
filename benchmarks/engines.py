"""Policies and models of peers on text-generating engines (W6): first token, further tokens, share in time, cache hits.

    python -m benchmarks.engines [--loads 0.7,0.9] [--requests 4000] [--seeds 2] [--update-docs]

`--update-docs` writes the tables into docs/policies.md. Some ten minutes on two cores as it stands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from statistics import mean

import msgspec
from rich.console import Console
from rich.progress import Progress

from steelyard.simulate.engine.result import RunResult, TokenRecord
from steelyard.simulate.peers import PEERS
from steelyard.simulate.run import run_all, tasks
from steelyard.simulate.scenario import catalog
from steelyard.simulate.scenario.schema import Scenario

from .testbed.docs_pages import markdown_table, write_section
from .testbed.machine import describe

FLAGSHIP = "prefix_work"
OWN_POLICIES = ("least_connections", "consistent_hash", "least_work@unlimited", "least_work@auto", FLAGSHIP)
POLICIES = (*OWN_POLICIES, *PEERS)
GOAL_RATIO = 1.03  # of TTFT p99 to the best peer's; the share in time may be as much less
UNEVEN_GOAL_RATIO = 0.65
HEADER = ["policy", "TTFT p50", "TTFT p99", "TPOT p99", "total p99", "in SLO", "cached"]


class Row:
    """The mean over seeds."""

    def __init__(self, results: list[RunResult]) -> None:
        tokens = [result.tokens for result in results if result.tokens is not None]

        def over_seeds(figure: Callable[[TokenRecord], float]) -> float:
            return mean(figure(each) for each in tokens)

        self.first_p50 = over_seeds(lambda each: each.first_token.quantile(0.5))
        self.first_p99 = over_seeds(lambda each: each.first_token.quantile(0.99))
        self.per_token_p99 = over_seeds(lambda each: each.per_token.quantile(0.99))
        self.cached = over_seeds(lambda each: each.cached_tokens / each.prompt_tokens)
        self.total_p99 = mean(result.latency.quantile(0.99) for result in results)
        self.in_slo = mean(result.share(result.within_slo) for result in results)

    def cells(self, policy: str) -> list[str]:
        name = f"**{policy}**" if policy == FLAGSHIP else policy
        seconds = [f"{self.first_p50:.3f} s", f"{self.first_p99:.2f} s", f"{self.per_token_p99 * 1000:.0f} ms"]
        seconds.append(f"{self.total_p99:.1f} s")
        return [name, *seconds, f"{self.in_slo:.1%}", f"{self.cached:.0%}"]


def tables(rows: dict[tuple[str, float, str], Row], todo: list[Scenario]) -> tuple[str, list[list[str]]]:
    """The tables as Markdown, and a row for each goal that was missed."""
    out: list[str] = []
    missed: list[list[str]] = []
    for scenario in todo:
        for load in scenario.loads:
            mine = {policy: rows[scenario.name, load, policy] for policy in POLICIES}
            out += ["", f"**{scenario.name.removeprefix('W6 ')}, {load:.0%} load**", ""]
            out.append(markdown_table(HEADER, [row.cells(policy) for policy, row in mine.items()]))
            missed += [
                [scenario.name.removeprefix("W6 "), f"{load:.0%}", *goal] for goal in goals_missed(scenario, mine)
            ]
    return "\n".join(out), missed


def goals_missed(scenario: Scenario, rows: dict[str, Row]) -> list[list[str]]:
    ours, peers = rows[FLAGSHIP], [rows[name] for name in PEERS]
    goal = GOAL_RATIO if len(scenario.fleet) == 1 else UNEVEN_GOAL_RATIO
    first, in_slo = min(peer.first_p99 for peer in peers), max(peer.in_slo for peer in peers)
    missed = []
    if ours.first_p99 > goal * first:
        missed.append([FLAGSHIP, "TTFT p99", f"{ours.first_p99 / first:.2f} × the best peer's", f"≤ {goal:g} ×"])
    if ours.in_slo * GOAL_RATIO < in_slo:
        missed.append([FLAGSHIP, "in SLO", f"{ours.in_slo:.1%}", f"≥ {in_slo / GOAL_RATIO:.1%}"])
    for policy in ("least_work@unlimited", "least_work@auto"):
        ratio = rows[policy].total_p99 / rows["least_connections"].total_p99
        if ratio > GOAL_RATIO:
            missed.append([policy, "total p99", f"{ratio:.2f} × least_connections", f"≤ {GOAL_RATIO:g} ×"])
    return missed


def run(todo: list[Scenario], processes: int) -> dict[tuple[str, float, str], Row]:
    work = [task for scenario in todo for task in tasks(scenario)]
    with Progress() as progress:
        bar = progress.add_task("simulating", total=len(work))
        results = run_all(work, processes=processes, done=lambda _: progress.advance(bar))
    found: dict[tuple[str, float, str], list[RunResult]] = {}
    for result in results:
        found.setdefault((result.scenario, result.load, result.policy), []).append(result)
    return {key: Row(some) for key, some in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--loads", default="0.7,0.9")
    parser.add_argument("--requests", type=int, default=4_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--update-docs", action="store_true")
    arguments = parser.parse_args()
    loads = tuple(float(load) for load in arguments.loads.split(","))
    changes = {"loads": loads, "requests": arguments.requests, "seeds": arguments.seeds, "policies": POLICIES}
    todo = [msgspec.structs.replace(scenario, **changes) for scenario in catalog.find_scenarios("W6")]
    command = f"python -m benchmarks.engines --loads {arguments.loads} --requests {arguments.requests}"
    machine = describe(f"{command} --seeds {arguments.seeds}")  # now: the commit may change while it runs
    body, missed = tables(run(todo, arguments.jobs), todo)
    verdict = f"{len(missed)} goals missed over {len(todo) * len(loads)} points." if missed else "All goals met."
    lines = [
        f"Simulated {machine}.",
        "",
        "TTFT: seconds to the first token; TPOT: mean seconds per further token; in SLO: first token within",
        "2 s and 100 ms per further one; total: the whole answer; cached: share of prompt tokens in a cache.",
        body,
        "",
        verdict,
    ]
    if missed:
        lines += ["", markdown_table(["workload", "load", "policy", "figure", "ours", "goal"], missed)]
    text = "\n".join(lines)
    Console(width=150).print(text, markup=False, highlight=False)
    if arguments.update_docs:
        write_section("policies.md", "benchmarks/engines.py", text)


if __name__ == "__main__":
    main()
