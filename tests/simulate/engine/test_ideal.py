"""The reference against a slower, plainer one."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from steelyard.documents import Seconds
from steelyard.simulate.engine.ideal import run_ideal
from steelyard.simulate.engine.job import Job
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.scenario.schema import Fault, ReplicaGroup


def some_jobs(rng: Random, number: int, rate: float, mean: float = 1.0) -> list[Job]:
    now = 0.0
    jobs = []
    for _ in range(number):
        now += rng.expovariate(rate)
        jobs.append(Job(now, rng.expovariate(1 / mean), (1.0,)))
    return jobs


def ideal(
    fleet: tuple[ReplicaGroup, ...], faults: tuple[Fault, ...], jobs: list[Job], warmup: float = 0.0
) -> RunResult:
    return run_ideal(fleet, faults, jobs, RunResult("s", "ideal", 1.0, 1), warmup=warmup)


def speed_at(when: float, speed: float, faults: list[Fault]) -> float:
    """By the words of docs/simulator.md, just after this time."""
    for fault in faults:
        begin, end = fault.at, fault.at + fault.duration
        if fault.kind == "join" and when < begin + fault.cold_start:
            return 0.0
        if fault.kind == "errors" and begin <= when < end:
            return 0.0
        if fault.kind == "crash" and begin <= when < end + fault.cold_start:
            return 0.0
        if fault.kind == "slow" and begin <= when < end:
            speed /= fault.factor
    return speed


def done_at(start: float, work: float, speed: float, faults: list[Fault]) -> float:
    """Work off piece by piece between all times at which anything may change."""
    changes = {
        t for f in faults for t in (f.at, f.at + f.duration, f.at + f.cold_start, f.at + f.duration + f.cold_start)
    }
    now = start
    for change in sorted(changes):
        if change <= now:
            continue
        pace = speed_at(now, speed, faults)
        if pace and now + work / pace <= change:
            return now + work / pace
        work -= pace * (change - now)
        now = change
    return now + work / speed_at(now, speed, faults)


def plain(fleet: tuple[ReplicaGroup, ...], faults: tuple[Fault, ...], jobs: list[Job]) -> list[float]:
    """Latencies when each request, in order, tries every slot of every replica and takes the earliest end."""
    speeds = [group.speed for group in fleet for _ in range(group.count)]
    free = [[0.0] * group.slots for group in fleet for _ in range(group.count)]
    latencies = []
    for job in jobs:
        ends = [
            (done_at(max(when, job.intended_at), job.work, speeds[r], [f for f in faults if f.replica == r]), r, s)
            for r, slots in enumerate(free)
            for s, when in enumerate(slots)
        ]
        end, r, s = min(ends)
        free[r][s] = end
        latencies.append(end - job.intended_at)
    return latencies


def assert_same(result: RunResult, latencies: list[float]) -> None:
    assert result.latency.count == len(latencies)
    assert result.latency.total == pytest.approx(sum(latencies), rel=1e-9)
    assert result.latency.maximum == pytest.approx(max(latencies), rel=1e-9)
    ranked = sorted(latencies)
    for q in (0.25, 0.5, 0.9, 0.99):
        assert result.latency.quantile(q) == pytest.approx(ranked[max(0, -int(-q * len(ranked) // 1) - 1)], rel=0.003)


FLEETS = {
    "one": (ReplicaGroup(),),
    "three equal": (ReplicaGroup(count=3),),
    "unequal": (ReplicaGroup(count=2), ReplicaGroup(speed=0.25), ReplicaGroup(speed=3.0)),
    "slots": (ReplicaGroup(count=2, slots=3), ReplicaGroup(slots=2, speed=0.5)),
}


@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("seed", range(3))
def test_the_ideal_sends_each_where_it_ends_first(fleet: tuple[ReplicaGroup, ...], seed: int) -> None:
    rate = 0.9 * sum(group.capacity for group in fleet)
    jobs = some_jobs(Random(seed), 300, rate)
    assert_same(ideal(fleet, (), jobs), plain(fleet, (), jobs))


FAULTS = {
    "slow": (Fault(kind="slow", at=Seconds(10), duration=Seconds(20), factor=5.0),),
    "errors": (Fault(kind="errors", at=Seconds(10), duration=Seconds(20)),),
    "crash": (Fault(kind="crash", at=Seconds(10), duration=Seconds(20), cold_start=Seconds(7)),),
    "join": (Fault(kind="join", replica=1, at=Seconds(10), cold_start=Seconds(7)),),
    "one after the other": (
        Fault(kind="slow", at=Seconds(40), duration=Seconds(10), factor=0.5),
        Fault(kind="crash", at=Seconds(5), duration=Seconds(10), cold_start=Seconds(3)),
        Fault(kind="errors", replica=1, at=Seconds(10), duration=Seconds(5)),
    ),
    "join, then slow": (
        Fault(kind="join", replica=1, at=Seconds(5), cold_start=Seconds(5)),
        Fault(kind="slow", replica=1, at=Seconds(20), duration=Seconds(20), factor=3.0),
    ),
}


@pytest.mark.parametrize("fleet", [FLEETS["three equal"], FLEETS["unequal"], FLEETS["slots"]])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_the_ideal_knows_every_fault_beforehand(fleet: tuple[ReplicaGroup, ...], faults: tuple[Fault, ...]) -> None:
    rate = 0.8 * sum(group.capacity for group in fleet)
    jobs = some_jobs(Random(7), 300, rate)
    assert_same(ideal(fleet, faults, jobs), plain(fleet, faults, jobs))


def test_faults_of_one_replica_may_overlap() -> None:
    # docs/simulator.md: "`faults` is a list; several may hit one replica."
    faults = (
        Fault(kind="slow", at=Seconds(10), duration=Seconds(40), factor=2.0),
        Fault(kind="crash", at=Seconds(20), duration=Seconds(10), cold_start=Seconds(0)),
    )
    jobs = [Job(0.0, 30.0, (1.0,))]
    # 10 s of work by 10, 5 more by 20, none until 30, 10 more by 50, the last 5 by 55
    assert plain((ReplicaGroup(),), faults, jobs) == pytest.approx([55.0])
    assert ideal((ReplicaGroup(),), faults, jobs).latency.total == pytest.approx(55.0)


def test_one_server_follows_lindleys_recursion() -> None:
    jobs = some_jobs(Random(3), 2_000, rate=0.9)
    waits = [0.0]
    for before, job in pairwise(jobs):
        waits.append(max(0.0, waits[-1] + before.work - (job.intended_at - before.intended_at)))
    assert_same(ideal((ReplicaGroup(),), (), jobs), [wait + job.work for wait, job in zip(waits, jobs, strict=True)])


def test_a_replica_that_is_slow_but_free_is_used_only_if_it_ends_sooner() -> None:
    fleet = (ReplicaGroup(), ReplicaGroup(speed=0.2))
    jobs = [Job(0.0, 1.0, (1.0,)), Job(0.0, 1.0, (1.0,)), Job(0.0, 3.0, (1.0,)), Job(0.0, 1.0, (1.0,))]
    # 1 on the fast; 2 there as well; 3 there too, for the slow would need 15; the slow one ends the last at 5, not 6
    result = ideal(fleet, (), jobs)
    assert result.latency.total == pytest.approx(1 + 2 + 5 + 5)


def test_the_ideal_counts_only_after_the_warm_up_but_queues_behind_all() -> None:
    jobs = [Job(0.0, 10.0, (1.0,)), Job(5.0, 1.0, (1.0,)), Job(6.0, 1.0, (1.0,))]
    result = ideal((ReplicaGroup(),), (), jobs, warmup=5.0)
    assert (result.latency.count, result.requests, result.measured_requests) == (2, 3, 2)
    assert result.latency.total == pytest.approx(6.0 + 6.0)
    assert result.seconds == pytest.approx(12.0)


def test_the_ideal_counts_slos_and_deadlines_kept() -> None:
    jobs = [Job(0.0, 1.0, (1.0,)), Job(0.0, 1.0, (1.0,), deadline=1.5), Job(0.0, 1.0, (1.0,))]
    result = run_ideal((ReplicaGroup(),), (), jobs, RunResult("s", "ideal", 1.0, 1), warmup=0.0, slo=2.5)
    assert result.within_slo == 1  # the second is past its deadline, the third past the SLO
    assert result.low_slowdown == 3
