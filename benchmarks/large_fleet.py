"""What a decision costs in a large fleet, with many tenants, and what the look at the pool each second costs.

    python -m benchmarks.large_fleet [--replicas 10000] [--tenants 1000] [--rounds 2000] [--update-docs]

Each figure is of single calls: the median, and the 99th percentile, which contains whatever else the machine did. Run
it with the Python of `.venv-compiled` for the form that gateways run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import count
from random import Random
from statistics import median, quantiles
from time import perf_counter_ns

from rich.console import Console
from rich.table import Table

from steelyard import Balancer, Outcome, PoolOptions, Request, Send
from steelyard.core import balancer as compiled_module
from steelyard.core.memory.ledger import MemoryLedger
from steelyard.core.memory.request_size import RequestSizeModel

from .testbed.docs_pages import markdown_table, write_section
from .testbed.machine import describe

SECTION = "benchmarks/large_fleet.py"
GOAL_MICROS = 20.0
POLICIES = ("least_work", "least_work@auto", "least_connections", "power_of_two", "round_robin", "random", "peak_ewma")
SLOWER_POLICIES = ("prequal", "weighted_round_robin", "least_response_time", "latency_aware")
Row = tuple[str, list[float]]


def fleet(policy: str, replicas: int, **options: object) -> Balancer:
    """It has served for a while and is about 80 % busy."""
    rng = Random(1)
    name, _, limit = policy.partition("@")
    balancer = Balancer(Random(2))
    concurrency = limit if limit == "auto" else int(limit) if limit else "unlimited"
    balancer.add_model("", "power_of_two", PoolOptions(concurrency=concurrency, **options))  # type: ignore[arg-type]
    for n in range(replicas):
        balancer.add_replica(f"r{n}", weight=1.0 + n % 3, now=0.0)
    now = 0.0
    running: list[Request] = []
    for _ in range(4 * replicas):
        now += 0.05 / replicas
        request = Request("", (rng.lognormvariate(5.0, 1.0),))
        if isinstance(balancer.submit(request, now), Send):
            running.append(request)
        if len(running) > 0.8 * replicas:
            balancer.finish(running.pop(rng.randrange(len(running))), Outcome.OK, now)
        balancer.expire(now)
    balancer.set_policy("", name, now=now)
    return balancer


def fleet_with_memory(replicas: int) -> Balancer:
    """Each on a device of its own, with room for some four requests."""
    ledger = MemoryLedger()
    balancer = Balancer(Random(2), ledger)
    balancer.add_model("", "least_work", PoolOptions(), sizes=RequestSizeModel(1 << 30, 0.0))
    for n in range(replicas):
        device = ledger.set_device(f"gpu{n}", n, capacity=5 << 30, headroom=0.1)
        balancer.add_replica(f"r{n}", place=ledger.add_residency(device, f"s{n}", n), now=0.0)
    for n in range(2 * replicas):
        balancer.submit(Request("", (1.0,)), 1e-5 * n)
    return balancer


def request_cost(balancer: Balancer, rounds: int, keys: Iterator[str] | None = None, failed: int = 0) -> list[float]:
    """µs of submit and finish. `failed`: replicas that may not get it."""
    rng = Random(3)
    now = 100.0
    avoid = tuple(balancer.pool().members[:: len(balancer.pool().members) // failed][:failed]) if failed else ()
    samples = []
    for _ in range(rounds):
        now += 1e-4
        request = Request("", (rng.lognormvariate(5.0, 1.0),), key=next(keys) if keys is not None else None)
        request.avoid = avoid
        start = perf_counter_ns()
        balancer.submit(request, now)
        balancer.finish(request, Outcome.OK, now + 5e-5)
        samples.append((perf_counter_ns() - start) / 1000)
    return samples


def queue_cost(tenants: int, rounds: int) -> dict[str, list[float]]:
    """µs of calls while requests of all tenants wait, four of each."""
    rng = Random(4)
    balancer = Balancer(Random(2))
    balancer.add_model("", "least_connections", PoolOptions(concurrency=1, max_queue=10**6, queue_timeout=1000.0))
    for n in range(16):
        balancer.add_replica(f"r{n}", now=0.0)
    running: list[Request] = []

    def submit(now: float) -> None:
        tenant = f"t{rng.randrange(tenants)}"
        request = Request("", (rng.lognormvariate(5.0, 1.0),), tenant=tenant, deadline=now + 500.0 + rng.random())
        if isinstance(balancer.submit(request, now), Send):
            running.append(request)

    now = 0.0
    for _ in range(4 * tenants):
        submit(now)
    samples: dict[str, list[float]] = {"submit": [], "finish": [], "expire": []}
    for _ in range(rounds):
        now += 0.001
        done = running.pop(rng.randrange(len(running)))
        start = perf_counter_ns()
        decisions = balancer.finish(done, Outcome.OK, now)
        samples["finish"].append((perf_counter_ns() - start) / 1000)
        running += [decision.request for decision in decisions]
        start = perf_counter_ns()
        submit(now)
        samples["submit"].append((perf_counter_ns() - start) / 1000)
        balancer.wake = 0.0
        start = perf_counter_ns()
        balancer.expire(now)
        samples["expire"].append((perf_counter_ns() - start) / 1000)
    return samples


def review_cost(balancer: Balancer, seconds: int) -> tuple[list[float], float]:
    """µs of each call of `expire` that goes on with a review, and of all of a second together."""
    samples: list[float] = []
    for replica in balancer.pool().members:
        for attempt in list(replica.running_attempts):
            balancer.finish(attempt.request, Outcome.OK, balancer.next_wake() or 0.0)
    first = now = balancer.next_wake() or 0.0
    while (now := balancer.next_wake() or 0.0) < first + seconds:
        start = perf_counter_ns()
        balancer.expire(now)
        samples.append((perf_counter_ns() - start) / 1000)
    return samples, sum(samples) / seconds


def measure(options: argparse.Namespace) -> Iterator[Row]:
    size, rounds = options.replicas, options.rounds
    for policy in POLICIES:
        yield f"submit + finish, {policy}, {size:,} replicas", request_cost(fleet(policy, size), rounds)
    for policy in SLOWER_POLICIES:
        balancer = fleet(policy, size)
        yield f"submit + finish, {policy}, {size:,} replicas", request_cost(balancer, rounds // 20)
    for policy in POLICIES[:3]:
        name = f"the same, two replicas may not get it, {policy}"
        yield name, request_cost(fleet(policy, size), rounds, failed=2)
    yield "the same, memory is counted, half of it is in use, least_work", request_cost(fleet_with_memory(size), rounds)
    for replicas in (size // 10, size):
        balancer = fleet("consistent_hash", replicas)
        some = (f"k{n % 100}" for n in count())
        yield f"submit + finish, consistent_hash, {replicas:,} replicas, 100 keys", request_cost(balancer, rounds, some)
        new = (f"new{n}" for n in count())
        yield f"the same, a new key each, {replicas:,} replicas", request_cost(balancer, rounds, new)
    for name, samples in queue_cost(options.tenants, rounds).items():
        yield f"{name}, requests of {options.tenants:,} tenants wait", samples
    for policy in ("least_work", "least_work@auto"):
        samples, second = review_cost(fleet(policy, size), 5)
        yield f"a step of the review, {policy}, {size:,} replicas ({second:,.0f} µs a second)", samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--replicas", type=int, default=10_000)
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--update-docs", action="store_true", help="write the table into docs/performance.md")
    options = parser.parse_args()
    header = ["", "median µs", "p99 µs", f"≤ {GOAL_MICROS:g} µs"]
    rows = []
    for name, samples in measure(options):
        middle = median(samples)
        rows.append([name, f"{middle:.1f}", f"{quantiles(samples, n=100)[98]:.1f}", _verdict(middle)])
    machine = f"{describe(f'python -m benchmarks.large_fleet --rounds {options.rounds}')}, {form(compiled_module)}"
    table = Table(*header, title="Large fleets")
    for row in rows:
        table.add_row(*row)
    console = Console(width=120)
    console.print(table)
    console.print(machine)
    if options.update_docs:
        write_section("performance.md", SECTION, f"Measured {machine}.\n\n{markdown_table(header, rows)}")


def form(module: object) -> str:
    return "compiled" if str(getattr(module, "__file__", "")).endswith(".so") else "not compiled"


def _verdict(micros: float) -> str:
    return "✓" if micros <= GOAL_MICROS else "✗"


if __name__ == "__main__":
    main()
