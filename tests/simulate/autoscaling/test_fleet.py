"""A fleet whose size changes: what it costs to the second, and that nothing is lost when replicas come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import msgspec
import pytest

from steelyard.core.options import PoolOptions
from steelyard.core.replica import State
from steelyard.core.scalers.base import Recommendation, ScalingMetrics
from steelyard.core.scaling.decider import ScalingDecision
from steelyard.documents import Seconds
from steelyard.simulate.autoscaling.fleet import AutoscaledBalancer, AutoscaledFleet
from steelyard.simulate.engine.job import Job
from steelyard.simulate.engine.result import FleetRecord, RunResult
from steelyard.simulate.run import Task, run_task, tasks
from steelyard.simulate.scenario.catalog import find_scenarios
from steelyard.simulate.scenario.dynamics import Autoscale, TrafficShape
from steelyard.simulate.scenario.schema import ReplicaGroup, Scenario, Sizes, Workload

from ..watched import Watched, arrivals_after_warmup, everything


class Scripted:
    """Says what a function of the time says, and remembers what it was shown."""

    def __init__(self, plan: Callable[[float], int]) -> None:
        self.plan = plan
        self.seen: list[ScalingMetrics] = []

    def decide(self, seen: ScalingMetrics, *, planned: int = 0) -> ScalingDecision:
        self.seen.append(seen)
        wanted = self.plan(seen.now)
        return ScalingDecision(wanted, "scripted", Recommendation(wanted, "scripted"), 0, 1000)


EXACT = Autoscale(cold_start=Seconds(10), cold_start_jitter=0.0, probe_interval=Seconds(0), min=0)


class Stage:
    def __init__(
        self,
        plan: Callable[[float], int],
        jobs: Iterable[Job],
        *,
        start: int = 1,
        autoscale: Autoscale = EXACT,
        slots: int = 1,
        warmup: float = 0.0,
        slo: float = float("inf"),
    ) -> None:
        self.balancer = AutoscaledBalancer(Random(1))
        self.balancer.add_model(
            "", "least_work", PoolOptions(concurrency=slots, max_queue=10_000, wait_for_ready=True, queue_timeout=900)
        )
        self.result = RunResult("s", "least_work@1", 1.0, 1, scaler="scripted", fleet=FleetRecord())
        assert self.result.fleet is not None
        self.record = self.result.fleet
        self.simulation = Watched([], [self.balancer], jobs, self.result, Random(1), warmup=warmup, slo=slo)
        self.scaling = Scripted(plan)
        self.fleet = AutoscaledFleet(
            self.simulation,
            self.balancer,
            ReplicaGroup(slots=slots),
            autoscale,
            self.scaling,
            self.record,
            Random(2),
            start=start,
            warmup=warmup,
            slo=slo,
        )

    def run(self) -> Stage:
        self.simulation.run()
        self.fleet.close(self.result.seconds)
        return self


def steady(count: int, every: float, work: float) -> list[Job]:
    return [Job((n + 1) * every, work, (1.0,)) for n in range(count)]


# What it costs


def test_a_fleet_that_stays_costs_its_size_times_the_time() -> None:
    stage = Stage(lambda now: 3, steady(10, 10.0, 1.0), start=3).run()
    assert stage.result.seconds == 101.0
    assert stage.record.replica_seconds == 3 * 101.0
    assert stage.record.starts == 0
    assert stage.record.peak_replicas == 3


def test_a_started_replica_costs_from_the_order_on() -> None:
    """Ordered at 20 s, ready at 30 s; the last answer is at 101 s."""
    stage = Stage(lambda now: 2 if now >= 20 else 1, steady(10, 10.0, 1.0)).run()
    assert stage.record.replica_seconds == 101.0 + 81.0
    assert stage.record.starts == 1


def test_a_replica_that_leaves_costs_until_it_has_finished_what_it_has() -> None:
    """Two replicas, each with 50 s of work since the first second; one of them is not wanted from 5 s on."""
    jobs = [Job(0.5, 50.0, (1.0,)), Job(0.5, 50.0, (1.0,)), Job(100.0, 1.0, (1.0,))]
    stage = Stage(lambda now: 1 if now >= 5 else 2, jobs, start=2).run()
    assert stage.result.seconds == 101.0
    assert stage.record.replica_seconds == 101.0 + 50.5


def test_an_idle_replica_that_leaves_is_gone_at_once() -> None:
    stage = Stage(lambda now: 1 if now >= 5 else 2, steady(1, 20.0, 1.0), start=2).run()
    assert stage.record.replica_seconds == 21.0 + 5.0


def test_a_replica_that_leaves_before_it_was_ready_costs_until_then_and_never_serves() -> None:
    stage = Stage(lambda now: 4 if 10 <= now < 13 else 1, steady(10, 10.0, 1.0)).run()
    assert stage.record.replica_seconds == 101.0 + 3 * 3.0
    assert stage.record.starts == 3
    assert {sent.replica for sent in stage.simulation.sent} == {"r0"}


def test_the_warm_up_is_not_paid_for() -> None:
    stage = Stage(lambda now: 2 if now >= 20 else 1, steady(10, 10.0, 1.0), warmup=40.0).run()
    assert stage.record.replica_seconds == 2 * 61.0


# Nothing is lost


def wild(now: float) -> int:
    return (1, 7, 2, 9, 1, 0, 5, 3)[int(now / 4) % 8]


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("cold", [0.0, 3.0, 20.0])
def test_every_request_is_over_exactly_once_however_replicas_come_and_go(slots: int, cold: float) -> None:
    rng = Random(5)
    jobs, when = [], 0.0
    for _ in range(2_000):
        when += rng.expovariate(5.0)
        jobs.append(Job(when, rng.expovariate(2.0), (1.0,)))
    autoscale = msgspec.structs.replace(
        EXACT, cold_start=Seconds(cold), cold_start_jitter=0.5, probe_interval=Seconds(0.5)
    )
    stage = Stage(wild, jobs, slots=slots, autoscale=autoscale).run()
    assert stage.result.requests == stage.result.measured_requests == 2_000
    assert stage.result.failed == 0
    if cold < 4.0:  # else replicas leave before they were ever ready, and some wait longer than they may
        assert stage.result.latency.count == 2_000
    assert len(stage.simulation.counts) == 2_000
    assert set(stage.simulation.counts.values()) == {1}
    assert stage.simulation.left_over() == 0
    assert stage.record.starts > 50


def test_whoever_leaves_gets_nothing_new() -> None:
    left: dict[str, float] = {}
    jobs = steady(600, 0.2, 0.5)
    stage = Stage(wild, jobs, start=3)
    tell = stage.simulation.report_event

    def listen(id: str, event: object, now: float) -> None:
        if getattr(event, "value", "") == "drain":
            left[id] = now
        tell(id, event, now)  # type: ignore[arg-type]

    stage.simulation.report_event = listen  # type: ignore[method-assign]
    stage.run()
    assert left
    assert not [sent for sent in stage.simulation.sent if sent.when >= left.get(sent.replica, float("inf"))]
    remaining = stage.balancer.pool().replicas
    assert all(id not in remaining or remaining[id].state is State.DRAINING for id in left)


def test_whoever_is_not_ready_gets_nothing() -> None:
    stage = Stage(lambda now: 2 if now >= 20 else 1, steady(400, 0.25, 0.4)).run()
    assert stage.simulation.times_sent_to("r1", until=30.0) == []
    assert stage.simulation.times_sent_to("r1", since=30.0)


# From zero


def test_a_request_at_zero_is_held_and_answered_after_one_cold_start() -> None:
    jobs = [Job(5.3, 1.0, (1.0,)), Job(5.4, 1.0, (1.0,)), Job(6.0, 1.0, (1.0,))]
    stage = Stage(lambda now: 1 if now >= 5.3 else 0, jobs, start=0).run()
    assert stage.result.latency.count == 3
    assert stage.record.starts == 1  # one start, however many wait
    assert min(sent.when for sent in stage.simulation.sent) == pytest.approx(15.3)  # ordered at once, not a tick later
    assert stage.result.seconds == pytest.approx(18.3)
    assert stage.record.replica_seconds == pytest.approx(13.0)


def test_it_goes_to_zero_and_wakes_again() -> None:
    jobs = [Job(1.0, 1.0, (1.0,)), Job(100.0, 1.0, (1.0,))]
    stage = Stage(lambda now: 0 if 20 <= now < 100 else 1, jobs).run()
    assert stage.result.latency.count == 2
    assert stage.record.replica_seconds == pytest.approx(20.0 + 11.0)
    assert stage.result.latency.maximum == pytest.approx(11.0, rel=0.05)


# What the scaling is shown


def test_the_scaling_is_shown_what_the_balancer_knows() -> None:
    jobs = [Job(0.5, 4.0, (1.0,)), Job(0.6, 4.0, (1.0,)), Job(0.7, 4.0, (1.0,)), Job(30.0, 1.0, (1.0,))]
    stage = Stage(lambda now: 3 if now >= 2 else 1, jobs, slo=5.0).run()
    shown = {seen.now: seen for seen in stage.scaling.seen}
    first, third, late = shown[1.0], shown[3.0], shown[14.0]
    assert (first.ready, first.starting, first.running, first.waiting, first.arrived) == (1, 0, 1, 2, 3)
    assert (third.ready, third.starting) == (1, 2)
    assert not first.estimates_learned
    assert first.backlog > 0
    assert first.offered == 3.0  # a second each, while nothing is known
    assert late.answered == 3
    assert late.late == 2  # the second and third took 7.9 and 11.8 s where 5 were the target
    assert late.p99 == pytest.approx(11.8, rel=0.05)
    assert late.slo_seconds == 5.0
    assert late.slots == 1.0
    assert late.cold_start == 10.0
    assert (first.completed_work, first.busy_seconds) == (0.0, 0.0)
    assert late.completed_work == 3.0
    assert late.busy_seconds == pytest.approx(12.0)  # what the three really took, not what they waited


def test_work_is_shown_as_learned_once_requests_were_seen() -> None:
    stage = Stage(lambda now: 1, steady(100, 1.0, 0.25)).run()
    shown = [seen for seen in stage.scaling.seen if seen.estimates_learned]
    assert len(shown) < len(stage.scaling.seen)
    grown = (shown[-1].offered - shown[0].offered) / (shown[-1].now - shown[0].now)
    assert grown / shown[-1].rate == pytest.approx(0.25, rel=0.2)


def test_the_cold_start_is_as_measured_once_one_was() -> None:
    autoscale = msgspec.structs.replace(EXACT, probe_interval=Seconds(2.0))
    stage = Stage(lambda now: 2 if now >= 2 else 1, steady(10, 10.0, 1.0), autoscale=autoscale).run()
    before, after = stage.scaling.seen[5].cold_start, stage.scaling.seen[-1].cold_start
    assert before == 10.0
    assert 10.0 < after < 12.0


# Whole runs


SMALL = Scenario(
    name="small",
    requests=1_500,
    seeds=2,
    loads=(1.5,),
    slo=Seconds(2.0),
    fleet=(ReplicaGroup(),),
    workload=Workload(
        sizes=Sizes(mean=Seconds(0.2)),
        shape=TrafficShape(kind="spike", at=Seconds(30), factor=4.0, duration=Seconds(30)),
    ),
    autoscale=Autoscale(cold_start=Seconds(5), start=2, max=30),
)


@pytest.mark.parametrize("scaler", ["work", "kpa", "hpa", "fixed@4"])
def test_a_run_is_the_same_to_the_last_bit_when_run_again_and_loses_nothing(scaler: str) -> None:
    task = Task(SMALL, "least_work@1", 1.5, 1, scaler)
    result = run_task(task)
    assert result.measured_requests == arrivals_after_warmup(task)
    assert result.fleet is not None
    assert result.fleet.replica_seconds > 0
    assert len(result.fleet.times) == len(result.fleet.wanted) == len(result.fleet.offered) == len(result.fleet.late)
    assert everything(run_task(task)) == everything(result)
    assert everything(run_task(Task(SMALL, "least_work@1", 1.5, 2, scaler))) != everything(result)


def test_a_fixed_fleet_costs_exactly_its_size() -> None:
    result = run_task(Task(SMALL, "least_work@1", 1.5, 1, "fixed@4"))
    assert result.fleet is not None
    assert result.fleet.mean_replicas == pytest.approx(4.0)
    assert result.fleet.starts == 0


def test_there_is_a_run_for_every_policy_scaler_load_and_seed() -> None:
    scenario = msgspec.structs.replace(SMALL, policies=("least_work@1", "round_robin"), loads=(1.0, 2.0))
    made = {(task.policy, task.scaler, task.load, task.seed) for task in tasks(scenario)}
    assert len(made) == len(tasks(scenario)) == 2 * 3 * 2 * 2


def test_the_policy_is_least_work_with_the_slots_of_a_replica_unless_another_is_named() -> None:
    fleet = (ReplicaGroup(slots=8),)
    assert Scenario(fleet=fleet, autoscale=Autoscale()).policies == ("least_work@8",)
    assert Scenario(fleet=fleet, autoscale=Autoscale(), policies=("random",)).policies == ("random",)
    assert find_scenarios("A3")[0].policies == ("least_work@8",)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fleet": (ReplicaGroup(count=2),)}, "`fleet` must be one group of one"),
        ({"fleet": (ReplicaGroup(models=2),)}, "`fleet` must be without `models`"),
    ],
)
def test_a_scenario_that_cannot_be_scaled_is_told(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scenario(autoscale=Autoscale(), **fields)  # type: ignore[arg-type]
