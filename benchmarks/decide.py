"""What one decision costs: `policy.choose` alone, and a whole `submit` + `finish`, for every policy and fleet size.

    python -m benchmarks.decide [--sizes 8,64,10000] [--update-docs]

Medians over many rounds, on loads that are not zero, with replicas of learned and different speeds. Large fleets have
more figures in `benchmarks.large_fleet`.
"""

from __future__ import annotations

import argparse
from random import Random
from statistics import median
from time import perf_counter_ns

from rich.console import Console
from rich.table import Table

from steelyard import POLICIES, Balancer, Outcome, PoolOptions, Request, Send
from steelyard.core.prompt import BLOCK_BYTES, Prompt

from .testbed.docs_pages import markdown_table, write_section
from .testbed.machine import describe

GOAL_MICROS = {8: 5.0, 64: 20.0, 10_000: 20.0}
SIMPLE_GOAL_MICROS = 2.0
PROMPT_SIZES = (0, 8_192, 102_400)  # bytes
SIMPLE_POLICIES = {"round_robin", "weighted_round_robin", "random", "least_connections", "power_of_two"}


def prepare(policy: str, replicas: int, limit: bool) -> tuple[Balancer, Random, float]:
    """A balancer that has served for a while and is about 80 % busy."""
    rng = Random(1)
    balancer = Balancer(Random(2))
    # Warmed up by a policy that is cheap for any fleet; the one in question takes over at the end.
    balancer.add_model("", "power_of_two", PoolOptions(concurrency=1 if limit else "unlimited"))
    for n in range(replicas):
        balancer.add_replica(f"r{n}", weight=1.0 + n % 3, now=0.0)
    now = 0.0
    running: list[Request] = []
    for _ in range(min(20 * replicas, 40_000)):
        now += 0.05 / replicas
        request = Request("", (rng.lognormvariate(5.0, 1.0),), key=f"k{rng.randrange(100)}")
        if isinstance(balancer.submit(request, now), Send):
            running.append(request)
        if len(running) > 0.8 * replicas:
            done = running.pop(rng.randrange(len(running)))
            for decision in balancer.finish(done, Outcome.OK, now):
                running.append(decision.request)
        balancer.expire(now)
    while limit and running:  # under a limit only free replicas are candidates: at most all of them, idle
        for decision in balancer.finish(running.pop(), Outcome.OK, now):
            running.append(decision.request)
    balancer.set_policy("", policy, now=now)
    return balancer, rng, now


def cost_of_choosing(policy: str, replicas: int, limit: bool, rounds: int) -> float:
    """Median µs of `policy.choose` over all replicas, in batches of ten to be above the clock's grain."""
    balancer, rng, now = prepare(policy, replicas, limit)
    pool = balancer.pool()
    choose = pool.policy.choose
    samples = []
    for _ in range(rounds):
        request = Request("", (rng.lognormvariate(5.0, 1.0),), key=f"k{rng.randrange(100)}")
        pool.estimator.prepare(request)
        candidates = pool.open  # the worst case: all of them
        start = perf_counter_ns()
        for _ in range(10):
            choose(request, candidates, now)
        samples.append((perf_counter_ns() - start) / 10)
    return median(samples) / 1000


def cost_of_a_request(policy: str, replicas: int, rounds: int) -> float:
    """Median µs of a whole request: Request(), submit, finish, with all the learning and counting."""
    balancer, rng, now = prepare(policy, replicas, False)
    samples = []
    for _ in range(rounds):
        sizes = [(rng.lognormvariate(5.0, 1.0),) for _ in range(20)]
        start = perf_counter_ns()
        for features in sizes:
            now += 1e-4
            request = Request("", features, key="k")
            balancer.submit(request, now)
            balancer.finish(request, Outcome.OK, now + 5e-5)
        samples.append((perf_counter_ns() - start) / 20)
    return median(samples) / 1000


def make_prompt(size: int, known: tuple[int, ...], rng: Random) -> Prompt | None:
    return Prompt(size, (*known, *(rng.getrandbits(64) for _ in known))) if size else None


def cost_of_a_prompt(policy: str, replicas: int, size: int, rounds: int) -> float:
    """Median µs of a whole request with a prompt of so many bytes, half of which is in one of the caches: submit, first
    byte, finish. Hashing is not in it: that is the driver's."""
    balancer, rng, now = prepare(policy, replicas, False)
    pool = balancer.pool()
    known = [tuple(rng.getrandbits(64) for _ in range(size // BLOCK_BYTES // 2)) for _ in range(4 * replicas)]
    samples = []
    for _ in range(rounds):
        prompts = [make_prompt(size, rng.choice(known), rng) for _ in range(20)]
        start = perf_counter_ns()
        for prompt in prompts:
            now += 1e-4
            request = Request("", (100.0,), key="k", prompt=prompt)
            decision = balancer.submit(request, now)
            if pool.wants_first_byte and prompt is not None and isinstance(decision, Send):
                balancer.response_started(request, decision.replica, now)
            balancer.finish(request, Outcome.OK, now + 5e-5)
        samples.append((perf_counter_ns() - start) / 20)
    return median(samples) / 1000


def measure_prompts(rounds: int) -> list[list[str]]:
    rows = []
    for policy in ("least_work", "prefix_work"):
        for replicas in (8, 64):
            costs = [cost_of_a_prompt(policy, replicas, size, rounds) for size in PROMPT_SIZES]
            rows.append([f"{policy}, {replicas} replicas", *(f"{micros:.1f}" for micros in costs)])
    return rows


def goal_of(policy: str, size: int) -> float | None:
    if policy == "least_work":
        return GOAL_MICROS.get(size)
    return SIMPLE_GOAL_MICROS if policy in SIMPLE_POLICIES and size == 8 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", default="8,64,10000")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--update-docs", action="store_true", help="write the table into docs/policies.md")
    arguments = parser.parse_args()
    sizes = [int(x) for x in arguments.sizes.split(",")]
    header = ["policy", *(f"choose, {size:,}" for size in sizes), "goal at 8", "submit + finish, 8"]
    rows = []
    for policy in POLICIES:
        for limit in (False, True) if policy == "least_work" else (False,):
            rows.append(measure(policy, limit, sizes, arguments.rounds))
    prompts_header = ["submit + first byte + finish", "no prompt", *(f"{size:,} bytes" for size in PROMPT_SIZES[1:])]
    prompts = measure_prompts(arguments.rounds)
    machine = describe("python -m benchmarks.decide")
    console = Console(width=110)
    for title, columns, lines in (("One decision", header, rows), ("A request with a prompt", prompts_header, prompts)):
        table = Table(*columns, title=f"{title}, median µs")
        for row in lines:
            table.add_row(*row)
        console.print(table)
    console.print(machine)
    if arguments.update_docs:
        tables = f"{markdown_table(header, rows)}\n\n{markdown_table(prompts_header, prompts)}"
        text = f"Median µs. Measured {machine}.\n\n{tables}"
        write_section("policies.md", "benchmarks/decide.py", text)


def measure(policy: str, limit: bool, sizes: list[int], rounds: int) -> list[str]:
    row = [f"{policy}{'@1' if limit else ''}"]
    for size in sizes:
        micros = cost_of_choosing(policy, size, limit, rounds if size <= 1000 else max(20, rounds // 10))
        goal = goal_of(policy, size)
        row.append(f"{micros:.2f}" + ("" if goal is None else " ✓" if micros <= goal else f" ✗ (≤ {goal:g})"))
    goal = goal_of(policy, 8)
    row.append("" if goal is None else f"≤ {goal:g}")
    row.append(f"{cost_of_a_request(policy, 8, rounds):.1f}")
    return row


if __name__ == "__main__":
    main()
