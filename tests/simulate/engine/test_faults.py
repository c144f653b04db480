"""Faults do what docs/simulator.md says, and no request is lost or counted twice, whatever happens."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from steelyard.core.outcome import Outcome
from steelyard.documents import Seconds
from steelyard.simulate.engine import simulation
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.run import Task, run_task
from steelyard.simulate.scenario.schema import (
    Arrivals,
    Balancers,
    Balancing,
    Batching,
    Fault,
    ReplicaGroup,
    Scenario,
    Sizes,
    Trace,
    Workload,
)

from ..watched import Watched, arrivals_after_warmup, watch

LOGNORMAL = Workload(sizes=Sizes(kind="lognormal", mean=Seconds(0.1), cv=1.5), features=0.5)
POLICIES = ["round_robin", "random", "least_connections", "least_connections@1", "least_work@auto", "least_work@1"]
FLEET = (ReplicaGroup(count=6),)

SLOW = Fault(kind="slow", at=Seconds(10), duration=Seconds(15), factor=5.0)
ERRORS = Fault(kind="errors", at=Seconds(10), duration=Seconds(15))
CRASH = Fault(kind="crash", at=Seconds(10), duration=Seconds(8), cold_start=Seconds(4), detection_delay=Seconds(1))
JOIN = Fault(kind="join", at=Seconds(10), cold_start=Seconds(5))


def hit_by(*faults: Fault, requests: int = 1_500, **more: object) -> Scenario:
    """At load 0.6, 36 requests a second: about 42 seconds."""
    return Scenario(requests=requests, fleet=FLEET, workload=LOGNORMAL, faults=faults, **more)  # type: ignore[arg-type]


def assert_nothing_lost(scenario: Scenario, policy: str, load: float, result: RunResult, watched: Watched) -> None:
    expected = arrivals_after_warmup(Task(scenario, policy, load, 1))
    assert result.requests == scenario.requests
    assert result.measured_requests == result.latency.count + result.failed + sum(result.refused.values()) == expected
    assert len(watched.counts) == expected
    assert set(watched.counts.values()) == {1}
    assert watched.left_over() == 0


# All of them


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fault", [SLOW, ERRORS, CRASH, JOIN], ids=lambda fault: fault.kind)
def test_no_request_is_lost_or_counted_twice(policy: str, fault: Fault) -> None:
    scenario = hit_by(fault)
    result, watched = watch(scenario, policy, 0.6)
    assert_nothing_lost(scenario, policy, 0.6, result, watched)


@pytest.mark.parametrize("policy", ["least_connections", "least_work@1"])
def test_no_request_is_lost_when_everything_happens_to_batching_replicas_with_hedges(policy: str) -> None:
    scenario = Scenario(
        requests=1_500,
        fleet=(ReplicaGroup(count=4, slots=4, batching=Batching(slope=0.2)),),
        workload=LOGNORMAL,
        balancing=Balancing(hedging=True),
        faults=tuple(
            Fault(kind=kind, replica=place, at=Seconds(3), duration=Seconds(5), cold_start=Seconds(1))  # type: ignore[arg-type]
            for place, kind in enumerate(("slow", "errors", "crash", "join"))
        ),
    )
    result, watched = watch(scenario, policy, 0.5)
    assert_nothing_lost(scenario, policy, 0.5, result, watched)


def test_no_request_is_lost_when_all_replicas_are_down_for_a_while() -> None:
    faults = tuple(
        Fault(kind="crash", replica=place, at=Seconds(10), duration=Seconds(8), cold_start=Seconds(2))
        for place in range(6)
    )
    scenario = hit_by(*faults)
    result, watched = watch(scenario, "least_connections@1", 0.6)
    assert_nothing_lost(scenario, "least_connections@1", 0.6, result, watched)
    assert result.refused["no_replica"] > 0
    assert max(sent.when for sent in watched.sent) > 25  # it goes on afterwards


@pytest.mark.parametrize("policy", ["least_connections@1", "least_work@1"])
def test_no_request_is_lost_in_a_full_line_or_past_its_deadline(policy: str) -> None:
    scenario = Scenario(
        requests=1_500,
        fleet=FLEET,
        workload=Workload(sizes=LOGNORMAL.sizes, deadline=Seconds(0.5), tenants={"a": 5.0, "b": 1.0}),
        balancing=Balancing(max_queue=10),
        faults=(CRASH,),
    )
    result, watched = watch(scenario, policy, 1.3)
    assert_nothing_lost(scenario, policy, 1.3, result, watched)
    assert sum(result.refused.values()) > 100


# Slow


def alone(at: float, work: float, *faults: Fault, requests: int = 1) -> Scenario:
    """One replica, one request every `at` seconds at load work / at."""
    return Scenario(
        requests=requests,
        warmup=0.0,
        fleet=(ReplicaGroup(),),
        workload=Workload(
            sizes=Sizes(kind="constant", mean=Seconds(work)), features=0.0, arrivals=Arrivals(kind="regular")
        ),
        balancing=Balancing(outlier_detection=False, slow_start=Seconds(0)),
        faults=faults,
    )


def test_a_slow_replica_takes_longer_only_while_it_is_slow() -> None:
    slow = Fault(kind="slow", at=Seconds(15), duration=Seconds(20), factor=5.0)
    result = run_task(Task(alone(10.0, 1.0, slow, requests=4), "round_robin", 0.1, 1))
    assert result.latency.total == pytest.approx(1 + 5 + 5 + 1)


def test_a_request_running_when_its_replica_slows_is_slow_for_that_part_only() -> None:
    slow = Fault(kind="slow", at=Seconds(15), duration=Seconds(4), factor=4.0)
    result = run_task(Task(alone(10.0, 8.0, slow), "round_robin", 0.8, 1))
    assert result.latency.total == pytest.approx(5 + 4 + 2)  # 5 s of work, then 1 s in 4, then 2 s


def test_overlapping_slow_times_last_until_the_end_of_the_later_one() -> None:
    slow = [Fault(kind="slow", at=Seconds(at), duration=Seconds(20), factor=5.0) for at in (5, 15)]
    result = run_task(Task(alone(30.0, 0.9, *slow), "round_robin", 0.03, 1))
    assert result.latency.total == pytest.approx(4.5)


@pytest.mark.parametrize("policy", ["least_connections", "least_work@auto", "least_work@1"])
def test_a_slow_replica_gets_less(policy: str) -> None:
    _, watched = watch(hit_by(SLOW), policy, 0.6)
    there = len(watched.times_sent_to("r0", 10, 25))
    anywhere = sum(10 <= sent.when < 25 for sent in watched.sent)
    assert 0 < there < 0.6 * anywhere / 6


# Errors


def test_a_failing_replica_answers_at_once_with_errors_and_only_meanwhile() -> None:
    _, watched = watch(hit_by(ERRORS), "round_robin", 0.6)
    errors = [(when, job) for when, job, outcome in watched.ended if outcome is Outcome.ERROR]
    assert errors
    assert all(10 <= when <= 25 + 0.01 for when, _ in errors)
    assert all(job.server is not None for _, job in errors)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_failing_replicas_share_shrinks_and_comes_back(policy: str) -> None:
    _, watched = watch(hit_by(ERRORS, requests=3_000), policy, 0.6)
    anywhere = sum(10 <= sent.when < 25 for sent in watched.sent)
    assert len(watched.times_sent_to("r0", 10, 25)) < 0.5 * anywhere / 6
    assert len(watched.times_sent_to("r0", 60)) > 0


def test_with_retries_errors_reach_nobody_and_without_they_do() -> None:
    for retries in (True, False):
        result, _ = watch(hit_by(ERRORS, balancing=Balancing(retries=retries)), "least_connections", 0.6)
        assert (result.failed == 0) is retries


# Crash


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_crash_breaks_is_tried_again_elsewhere(policy: str) -> None:
    result, watched = watch(hit_by(CRASH), policy, 0.85)
    broken = [job for when, job, outcome in watched.ended if outcome is Outcome.CONNECTION_LOST]
    assert broken
    assert all(when == 10 for when, _, outcome in watched.ended if outcome is Outcome.CONNECTION_LOST)
    for job in broken:
        replicas = [sent.replica for sent in watched.sent if sent.job is job]
        assert replicas[0] == "r0"
        assert replicas[-1] != "r0"
    assert result.failed == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_crashed_replica_gets_nothing_from_when_it_is_noticed_until_it_is_loaded_again(policy: str) -> None:
    _, watched = watch(hit_by(CRASH, requests=3_000), policy, 0.6)
    assert watched.times_sent_to("r0", until=10)
    assert watched.times_sent_to("r0", 11, 10 + 8 + 4 + 1) == []
    assert watched.times_sent_to("r0", 23)


def test_a_crashed_replica_refuses_connections_until_it_is_noticed() -> None:
    _, watched = watch(hit_by(CRASH, balancing=Balancing(outlier_detection=False)), "round_robin", 0.6)
    refused = [when for when, _, outcome in watched.ended if outcome is Outcome.UNREACHABLE]
    assert refused
    assert all(10 <= when <= 11.01 for when in refused)


# Join


@pytest.mark.parametrize("policy", POLICIES)
def test_a_joining_replica_gets_nothing_before_it_is_loaded(policy: str) -> None:
    result, watched = watch(hit_by(JOIN), policy, 0.6)
    assert watched.times_sent_to("r0", until=15) == []
    assert len(watched.times_sent_to("r0", 15)) > 20
    assert result.failed == 0


def test_faults_before_a_replica_joins_do_not_matter() -> None:
    early = Fault(kind="crash", at=Seconds(2), duration=Seconds(1), cold_start=Seconds(1))
    scenario = hit_by(early, JOIN)
    result, watched = watch(scenario, "round_robin", 0.6)
    assert_nothing_lost(scenario, "round_robin", 0.6, result, watched)


# Several balancers


@pytest.mark.parametrize("policy", ["least_connections", "least_connections@1", "least_work@1"])
@pytest.mark.parametrize("delay", [0.0, 0.2, 2.0])
def test_several_balancers_with_late_signals_lose_nothing(policy: str, delay: float) -> None:
    signals = Balancers(count=3, signal_delay=Seconds(delay), signal_every=Seconds(0.05))
    scenario = hit_by(CRASH, balancers=signals)
    result, watched = watch(scenario, policy, 0.6)
    assert_nothing_lost(scenario, policy, 0.6, result, watched)
    assert len({sent.job.balancer for sent in watched.sent}) == 3


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_balancers_hear_what_the_others_had_that_long_ago(delay: float) -> None:
    # Work of 10 s, so that no news is too old to count.
    scenario = Scenario(
        requests=200,
        fleet=(ReplicaGroup(count=3),),
        workload=Workload(sizes=Sizes(kind="constant", mean=Seconds(10.0)), features=0.0),
        balancers=Balancers(count=2, signal_delay=Seconds(delay), signal_every=Seconds(1.0)),
        balancing=Balancing(outlier_detection=False),
    )
    had: dict[float, list[dict[str, int]]] = {}
    compared = 0

    class Listening(Watched):
        def run(self) -> RunResult:
            for second in range(1, 600):
                self.call_at(second - 1e-6, self.note)
                self.call_at(second + delay + 1e-6, self.compare)
            return super().run()

        def counts_of(self, name: str) -> list[dict[str, int]]:
            return [{r.id: getattr(r, name) for r in b.pool().replicas.values()} for b in self.balancers]

        def note(self, now: float) -> None:
            had[round(now)] = self.counts_of("in_flight")

        def compare(self, now: float) -> None:
            nonlocal compared
            then = round(now - delay)
            if not 100 < then < 500:
                return  # before anything is known of how long requests take; after the last arrival
            mine, other = had[then]
            assert self.counts_of("other_load") == [other, mine]
            compared += sum(mine.values()) > 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("steelyard.simulate.run.Simulation", Listening)
        run_task(Task(scenario, "least_connections", 0.9, 1))
    assert compared > 100


def test_what_still_waits_after_the_last_arrival_is_served() -> None:
    # With a limit of one, a replica that others seem to use is closed: old news must not keep it so for ever.
    scenario = Scenario(
        requests=2_000,
        fleet=(ReplicaGroup(count=4),),
        workload=Workload(sizes=Sizes(kind="exponential", mean=Seconds(1.0)), features=0.0),
        balancers=Balancers(count=4, signal_every=Seconds(0.05)),
        balancing=Balancing(outlier_detection=False),
    )
    result, _ = watch(scenario, "least_connections@1", 0.95)
    assert result.refused == {}
    assert result.latency.count == arrivals_after_warmup(Task(scenario, "least_connections@1", 0.95, 1))


# Hedging


@pytest.mark.parametrize("policy", ["least_connections", "least_work@auto", "least_work@1"])
@pytest.mark.parametrize("batching", [None, Batching(slope=0.1)], ids=["slots", "batching"])
def test_a_hedged_request_is_counted_once(policy: str, batching: Batching | None) -> None:
    scenario = Scenario(
        requests=3_000,
        fleet=(ReplicaGroup(count=6, slots=2, batching=batching),),
        workload=LOGNORMAL,
        faults=(Fault(kind="slow", at=Seconds(10), duration=Seconds(40), factor=5.0),),
        balancing=Balancing(hedging=True, outlier_detection=False),
    )
    result, watched = watch(scenario, policy, 0.3)
    assert sum(sent.hedged for sent in watched.sent) >= 10
    assert_nothing_lost(scenario, policy, 0.3, result, watched)
    assert result.failed == 0
    # A cancelled attempt ends nowhere: as many attempts end as requests came.
    assert len(watched.ended) == 3_000
    assert sum(result.served.values()) == 3_000


def test_a_hedge_goes_to_another_replica_while_the_first_attempt_runs() -> None:
    scenario = hit_by(SLOW, balancing=Balancing(hedging=True, outlier_detection=False))
    _, watched = watch(scenario, "least_connections", 0.3)
    hedges = [sent for sent in watched.sent if sent.hedged]
    assert hedges
    for hedge in hedges:
        first = next(sent for sent in watched.sent if sent.job is hedge.job)
        assert first.replica != hedge.replica
        assert first.when < hedge.when


# Time


def test_a_run_is_over_when_its_last_request_is() -> None:
    # At 12 it has 6 s left, which would take until 612; at 14 the replica is itself again.
    slow = Fault(kind="slow", at=Seconds(12), duration=Seconds(2), factor=100.0)
    result, watched = watch(alone(10.0, 8.0, slow), "round_robin", 0.8)
    assert watched.ended[-1][0] == pytest.approx(19.98)
    assert result.seconds == pytest.approx(19.98)


def test_what_is_done_every_so_often_is_done_until_the_last_request_is_over() -> None:
    heard: list[float] = []

    class Ticking(Watched):
        def run(self) -> RunResult:
            self.call_every(1.0, heard.append)
            return super().run()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("steelyard.simulate.run.Simulation", Ticking)
        result = run_task(Task(alone(10.0, 8.0), "round_robin", 0.8, 1))
    assert result.seconds == pytest.approx(18.0)
    assert [when for when in heard if when < 17.5] == pytest.approx([float(second) for second in range(1, 18)])


def test_the_timeline_goes_on_until_the_last_request_is_over() -> None:
    scenario = Scenario(requests=1_000, fleet=(ReplicaGroup(),), balancing=Balancing(outlier_detection=False))
    result = run_task(Task(scenario, "round_robin", 1.5, 1))
    step = result.timeline.times[1] - result.timeline.times[0]
    assert result.timeline.times[-1] >= result.seconds - 2 * step


@pytest.mark.parametrize("load", [0.0, 0.7])
def test_a_trace_of_one_request_can_be_run(tmp_path: Path, load: float, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    at = simulation.Simulation.call_at

    def bounded(self: simulation.Simulation, when: float, action: object) -> None:
        nonlocal calls
        calls += 1
        assert calls < 10_000, "it plans for ever"
        at(self, when, action)  # type: ignore[arg-type]

    monkeypatch.setattr(simulation.Simulation, "call_at", bounded)
    file = tmp_path / "one.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,100,10\n", encoding="utf-8")
    scenario = Scenario(workload=Workload(trace=Trace(file=str(file), format="azure")), loads=(load,))
    assert run_task(Task(scenario, "round_robin", load, 1)).measured_requests == 1


def test_any_few_faults_lose_nothing() -> None:
    rng = Random(11)
    for _ in range(12):
        kinds = rng.sample(["slow", "errors", "crash", "join"], 3)
        faults = tuple(
            Fault(
                kind=kind,  # type: ignore[arg-type]
                replica=place,
                at=Seconds(rng.uniform(0, 15)),
                duration=Seconds(rng.uniform(0, 10)),
                cold_start=Seconds(rng.uniform(0, 5)),
                detection_delay=Seconds(rng.uniform(0, 3)),
            )
            for place, kind in enumerate(kinds)
        )
        scenario = hit_by(*faults, requests=600, balancing=Balancing(hedging=True))
        policy = rng.choice(POLICIES)
        result, watched = watch(scenario, policy, 0.8)
        assert_nothing_lost(scenario, policy, 0.8, result, watched)
