"""How many requests per second the simulator drives through core.Balancer, and that its memory does not grow.

    python -m benchmarks.simulator [--requests 200000]

16 equal replicas at 85 % load with `least_work`, sizes half explained by a feature: goal ≥ 50,000 requests per second
of one core's time. Then ten times as many requests, for the memory.
"""

from __future__ import annotations

import argparse
import gc
import tracemalloc
from time import process_time

import msgspec
from rich.console import Console
from rich.table import Table

from steelyard.simulate.run import Task, run_task
from steelyard.simulate.scenario.schema import ReplicaGroup, Scenario, Workload

from .testbed.machine import describe

GOAL_REQUESTS_PER_SECOND = 50_000
POLICIES = ("least_work@1", "least_work@auto", "least_work@unlimited", "least_connections", "round_robin")


def speed(policy: str, scenario: Scenario, rounds: int) -> float:
    """Requests per CPU second, the best of some rounds: what the code costs, not what else the machine was doing."""
    best = 0.0
    for seed in range(1, rounds + 1):
        start = process_time()
        result = run_task(Task(scenario, policy, scenario.loads[0], seed))
        best = max(best, result.requests / (process_time() - start))
    return best


def peak_memory(policy: str, scenario: Scenario) -> float:
    """Peak MiB allocated while it runs."""
    gc.collect()
    tracemalloc.start()
    run_task(Task(scenario, policy, scenario.loads[0], 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    scenario = Scenario(
        name="16 equal",
        requests=arguments.requests,
        loads=(0.85,),
        fleet=(ReplicaGroup(count=16),),
        workload=Workload(features=0.5),
    )
    console = Console(width=100)
    table = Table(title="The simulator, 16 replicas at 85 % load")
    table.add_column("policy")
    table.add_column("requests per CPU second", justify="right")
    for policy in POLICIES:
        rate = speed(policy, scenario, arguments.rounds)
        verdict = (
            (" ✓" if rate >= GOAL_REQUESTS_PER_SECOND else f" ✗ (≥ {GOAL_REQUESTS_PER_SECOND:,})")
            if policy == "least_work@1"
            else ""
        )
        table.add_row(policy, f"{rate:,.0f}{verdict}")
    console.print(table)
    small = msgspec.structs.replace(scenario, requests=20_000)
    large = msgspec.structs.replace(scenario, requests=200_000)
    console.print(
        f"peak memory: {peak_memory('least_work@1', small):.1f} MiB for 20,000 requests, "
        f"{peak_memory('least_work@1', large):.1f} MiB for 200,000"
    )
    console.print(describe("python -m benchmarks.simulator"))


if __name__ == "__main__":
    main()
