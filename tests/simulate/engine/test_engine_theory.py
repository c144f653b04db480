"""Where queueing theory has an answer, the simulator gives the same.

For M/M/1, M/D/1 and M/M/4 the tolerance is 2.4 to 3.5 standard errors of a run of that length, measured over twenty
seeds; for the others (processor sharing, quantiles, random split, Little's law) it was not measured.
"""

from __future__ import annotations

from functools import cache
from math import factorial, log

import pytest

from steelyard.documents import Seconds
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.run import Task, run_task
from steelyard.simulate.scenario.schema import Balancing, Batching, ReplicaGroup, Scenario, Sizes, Workload
from steelyard.simulate.workload.generator import random_jobs

EXPONENTIAL = Sizes(kind="exponential", mean=Seconds(1.0))
CONSTANT = Sizes(kind="constant", mean=Seconds(1.0))
LOGNORMAL = Sizes(kind="lognormal", mean=Seconds(1.0), cv=2.0)


def scenario(fleet: ReplicaGroup, requests: int, sizes: Sizes = EXPONENTIAL) -> Scenario:
    """Mean work 1 s, so that times are in units of the service time. Ejection would be another system."""
    return Scenario(
        requests=requests,
        fleet=(fleet,),
        workload=Workload(sizes=sizes, features=0.0),
        balancing=Balancing(outlier_detection=False),
    )


@cache
def simulate(
    policy: str, load: float, fleet: ReplicaGroup, requests: int, sizes: Sizes = EXPONENTIAL, seed: int = 1
) -> RunResult:
    result = run_task(Task(scenario(fleet, requests, sizes), policy, load, seed))
    assert result.failed == 0
    assert result.refused == {}
    return result


def erlang_c(servers: int, load: float) -> float:
    """Probability of waiting in M/M/c at this load of each server."""
    offered = servers * load
    full = offered**servers / factorial(servers) / (1 - load)
    return full / (sum(offered**k / factorial(k) for k in range(servers)) + full)


def mean_in_mmc(servers: int, load: float) -> float:
    return 1.0 + erlang_c(servers, load) / (servers * (1 - load))


def mean_of(results: list[RunResult]) -> float:
    return sum(r.latency.total for r in results) / sum(r.latency.count for r in results)


# One server


@pytest.mark.parametrize(
    ("load", "requests", "within"), [(0.5, 40_000, 0.04), pytest.param(0.8, 150_000, 0.06, marks=pytest.mark.slow)]
)
def test_one_server_has_the_mean_time_of_m_m_1(load: float, requests: int, within: float) -> None:
    result = simulate("random", load, ReplicaGroup(), requests)
    assert result.latency.mean == pytest.approx(1 / (1 - load), rel=within)


def test_time_in_m_m_1_is_exponential() -> None:
    result = simulate("random", 0.5, ReplicaGroup(), 40_000)
    for q in (0.25, 0.5, 0.9, 0.99):
        assert result.latency.quantile(q) == pytest.approx(-log(1 - q) * 2.0, rel=0.05)


@pytest.mark.parametrize(("load", "within"), [(0.5, 0.02), (0.8, 0.06)])
def test_one_server_with_equal_work_has_the_mean_time_of_m_d_1(load: float, within: float) -> None:
    result = simulate("random", load, ReplicaGroup(), 40_000, CONSTANT)
    assert result.latency.mean == pytest.approx(1 + load / (2 * (1 - load)), rel=within)


def test_a_faster_server_does_the_same_in_proportionally_less_time() -> None:
    one = simulate("random", 0.7, ReplicaGroup(), 5_000)
    four = simulate("random", 0.7, ReplicaGroup(speed=4.0), 5_000)
    assert four.latency.mean == pytest.approx(one.latency.mean / 4, rel=1e-9)


@pytest.mark.parametrize("policy", ["random", "round_robin", "least_connections", "least_connections@1"])
def test_one_server_follows_lindleys_recursion_request_by_request(policy: str) -> None:
    load, requests = 0.9, 5_000
    result = simulate(policy, load, ReplicaGroup(), requests)
    warmup = 0.05 * requests / load
    free, total, longest, counted = 0.0, 0.0, 0.0, 0
    for job in random_jobs(scenario(ReplicaGroup(), requests), load, 1):
        free = max(free, job.intended_at) + job.work
        if job.intended_at >= warmup:
            total, longest, counted = total + free - job.intended_at, max(longest, free - job.intended_at), counted + 1
    assert result.latency.count == counted
    assert result.latency.total == pytest.approx(total, rel=1e-9)
    assert result.latency.maximum == pytest.approx(longest, rel=1e-9)
    assert result.seconds == pytest.approx(free, rel=1e-9)


# Processor sharing


@pytest.mark.parametrize("load", [0.5, 0.7])
def test_processor_sharing_has_the_mean_time_of_m_m_1(load: float) -> None:
    # n at once each run at 1 / n: a capacity of 1 whatever runs.
    fleet = ReplicaGroup(slots=1_000, batching=Batching(slope=1.0))
    result = simulate("random", load, fleet, 40_000)
    assert fleet.capacity == pytest.approx(1.0)
    assert result.latency.mean == pytest.approx(1 / (1 - load), rel=0.05)


def test_processor_sharing_does_not_mind_how_uneven_the_work_is() -> None:
    fleet = ReplicaGroup(slots=1_000, batching=Batching(slope=1.0))
    result = simulate("random", 0.5, fleet, 40_000, LOGNORMAL)
    assert result.latency.mean == pytest.approx(2.0, rel=0.05)  # first come, first served would take 3.5


def test_batching_without_a_slope_is_as_many_servers_as_slots() -> None:
    batch = simulate("random", 0.8, ReplicaGroup(slots=4, batching=Batching(slope=0.0)), 10_000)
    slots = simulate("random", 0.8, ReplicaGroup(slots=4), 10_000)
    assert batch.latency.mean == pytest.approx(slots.latency.mean, rel=1e-9)
    assert batch.latency.maximum == pytest.approx(slots.latency.maximum, rel=1e-9)


# Several servers


def test_a_central_queue_waits_as_erlang_says() -> None:
    load = 0.7
    results = [simulate("least_connections@1", load, ReplicaGroup(count=4), 40_000, seed=seed) for seed in (1, 2)]
    assert mean_of(results) == pytest.approx(mean_in_mmc(4, load), rel=0.04)
    assert mean_of(results) - 1.0 == pytest.approx(erlang_c(4, load) / (4 * (1 - load)), rel=0.15)


def test_the_ideal_waits_as_erlang_says() -> None:
    load = 0.7
    results = [simulate("ideal", load, ReplicaGroup(count=4), 100_000, seed=seed) for seed in range(1, 6)]
    assert mean_of(results) - 1.0 == pytest.approx(erlang_c(4, load) / (4 * (1 - load)), rel=0.06)


def test_four_slots_of_one_server_are_four_servers_with_one_line() -> None:
    slots = simulate("random", 0.7, ReplicaGroup(slots=4), 40_000)
    central = simulate("least_connections@1", 0.7, ReplicaGroup(count=4), 40_000)
    assert slots.latency.mean == pytest.approx(central.latency.mean, rel=1e-9)
    assert slots.latency.maximum == pytest.approx(central.latency.maximum, rel=1e-9)


def test_a_random_split_makes_independent_m_m_1_servers() -> None:
    load = 0.6
    result = simulate("random", load, ReplicaGroup(count=4), 40_000)
    assert result.latency.mean == pytest.approx(1 / (1 - load), rel=0.04)
    assert result.latency.quantile(0.99) == pytest.approx(log(100) / (1 - load), rel=0.06)
    for number in result.served.values():
        assert number == pytest.approx(10_000, rel=0.03)


def test_the_shorter_of_two_queues_is_between_one_line_and_two_that_do_not_know_of_each_other() -> None:
    load = 0.8
    central, shorter, split = (
        simulate(policy, load, ReplicaGroup(count=2), 20_000).latency.mean
        for policy in ("least_connections@1", "least_connections@unlimited", "random")
    )
    assert central < shorter < split  # over the same requests
    assert 0.9 * mean_in_mmc(2, load) < shorter < 1 / (1 - load)


@pytest.mark.parametrize("policy", ["least_connections@1", "least_work@1"])
@pytest.mark.parametrize(("count", "sizes"), [(4, EXPONENTIAL), (8, LOGNORMAL)])
def test_a_central_queue_over_equal_replicas_has_the_p99_of_the_ideal(policy: str, count: int, sizes: Sizes) -> None:
    fleet = ReplicaGroup(count=count)
    result = simulate(policy, 0.85, fleet, 10_000, sizes)
    ideal = simulate("ideal", 0.85, fleet, 10_000, sizes)
    assert result.latency.count == ideal.latency.count
    assert result.latency.quantile(0.99) == pytest.approx(ideal.latency.quantile(0.99), rel=0.01)
    assert result.latency.mean == pytest.approx(ideal.latency.mean, rel=0.01)


# Little's law


@pytest.mark.parametrize(("policy", "load"), [("random", 0.6), ("least_connections@1", 0.9)])
def test_requests_in_the_system_are_their_rate_times_their_time(policy: str, load: float) -> None:
    # Many servers, so that 200 glances are enough for a mean.
    count = 20
    result = simulate(policy, load, ReplicaGroup(count=count), 30_000)
    seen = result.timeline
    first = next(i for i, when in enumerate(seen.times) if when > 0.05 * seen.times[-1])
    there = [seen.waiting[i] + sum(line[i] for line in seen.load.values()) for i in range(first, 200)]
    assert sum(there) / len(there) == pytest.approx(load * count * result.latency.mean, rel=0.06)
