"""Every built-in workload runs, loses nothing, and gives the same numbers each time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from steelyard.core.errors import OptionError
from steelyard.simulate.run import IDEAL, Task, check_scenario, has_ideal, run_all, run_task, tasks
from steelyard.simulate.scenario.catalog import CATALOG, TITLES, find_scenarios, scenario_for_trace
from steelyard.simulate.scenario.schema import Fault, Scenario
from steelyard.simulate.workload.traces import read_trace

from ..watched import arrivals_after_warmup, everything, watch

REQUEST_COUNT = 400


def short(scenario: Scenario) -> Scenario:
    """The same with few requests: slow enough to meet any fault, and no month of virtual time as one was recorded."""
    load = 0.05 if scenario.faults else scenario.loads[0] or 0.5
    load = load if scenario.autoscale is None else max(load, 0.2)  # rare requests are many decisions
    return msgspec.structs.replace(scenario, requests=REQUEST_COUNT, seeds=1, loads=(load,))


def two_ways(scenario: Scenario) -> list[tuple[str, str]]:
    """The first and the last policy; where the fleet's size changes, the first and the last scaler."""
    policies = [policy for policy in scenario.policies if policy != IDEAL]
    if scenario.autoscale is not None:
        return [(policies[0], scaler) for scaler in (scenario.autoscale.scalers[0], scenario.autoscale.scalers[-1])]
    return [(policies[0], ""), (policies[-1], "")]


def marks(scenario: Scenario, policy: str) -> list[pytest.MarkDecorator]:
    """5,000 replicas take their time."""
    return [pytest.mark.slow] if scenario.name.startswith("W11") else []


CASES = [
    pytest.param(short(scenario), *way, id=f"{scenario.name}-{way[1] or way[0]}", marks=marks(scenario, way[0]))
    for name in CATALOG
    for scenario in find_scenarios(name)
    for way in two_ways(scenario)
]


@pytest.mark.parametrize(("scenario", "policy", "scaler"), CASES)
def test_every_workload_loses_nothing_and_is_the_same_to_the_last_bit_when_run_again(
    scenario: Scenario, policy: str, scaler: str
) -> None:
    task = Task(scenario, policy, scenario.loads[0], 1, scaler)
    result = run_task(task)
    assert result.requests == REQUEST_COUNT
    if scenario.workload.conversations is None:  # else a turn comes after the answer to the one before it
        assert result.measured_requests == arrivals_after_warmup(task)
    assert result.measured_requests == result.latency.count + result.failed + sum(result.refused.values())
    assert result.latency.count > 0
    assert 0 <= result.low_slowdown <= result.latency.count
    assert result.within_slo <= result.latency.count
    assert result.latency.maximum < result.seconds
    assert everything(run_task(task)) == everything(result)


@pytest.mark.parametrize("policy", [p for p in find_scenarios("W1")[0].policies if p != IDEAL])
def test_every_policy_is_the_same_to_the_last_bit_when_run_again(policy: str) -> None:
    task = Task(short(find_scenarios("W3")[7]), policy, 0.85, 3)
    assert everything(run_task(task)) == everything(run_task(task))


def test_a_trace_as_recorded_keeps_its_times() -> None:
    scenario = msgspec.structs.replace(find_scenarios("W5")[0], requests=40)
    trace = scenario.workload.trace
    assert trace is not None
    *_, last = read_trace(trace.file, trace.format, 40)
    task = Task(scenario, "least_work@1", 0.0, 1)
    result = run_task(task)
    assert result.measured_requests == arrivals_after_warmup(task)
    assert result.seconds >= last.arrival + last.work[0]


def test_another_seed_gives_other_numbers() -> None:
    scenario = short(find_scenarios("W1")[0])
    one, two = (run_task(Task(scenario, "random", 0.7, seed)) for seed in (1, 2))
    assert one.latency.total != two.latency.total


def test_the_ideal_is_the_same_when_run_again_and_counts_the_same_requests() -> None:
    task = Task(short(find_scenarios("W8")[2]), IDEAL, 0.05, 1)
    result = run_task(task)
    assert result.measured_requests == result.latency.count == arrivals_after_warmup(task)
    assert everything(run_task(task)) == everything(result)


def test_two_processes_give_the_numbers_of_one_in_the_same_order() -> None:
    scenario = msgspec.structs.replace(
        short(find_scenarios("W2")[3]), seeds=2, policies=("ideal", "random", "least_work@1")
    )
    todo = tasks(scenario)
    heard: list[str] = []
    alone = run_all(todo, processes=1)
    together = run_all(todo, processes=2, done=lambda result: heard.append(everything(result)))
    assert [(r.policy, r.seed) for r in alone] == [(t.policy, t.seed) for t in todo]
    assert [everything(r) for r in together] == [everything(r) for r in alone] == heard


@pytest.mark.parametrize("scenario", [s for s in find_scenarios("W8") if s.faults], ids=lambda s: s.name)
def test_the_faults_of_w8_happen_in_a_whole_run(scenario: Scenario) -> None:
    fault: Fault = scenario.faults[0]
    for load in scenario.loads:
        span = scenario.requests / (load * scenario.capacity / scenario.workload.sizes.mean)
        assert fault.at + fault.duration + fault.cold_start < span


def test_a_short_run_of_w8_meets_its_fault() -> None:
    for scenario in find_scenarios("W8"):
        if scenario.faults:
            _, watched = watch(short(scenario), "round_robin", 0.05)
            assert watched.now > scenario.faults[0].at + 5


# The catalogue itself


def test_the_names_are_w1_to_w11_and_a1_to_a6_each_with_a_title_and_names_of_its_own() -> None:
    assert list(CATALOG) == list(TITLES) == [*(f"W{n}" for n in range(1, 12)), *(f"A{n}" for n in range(1, 7))]
    names = [scenario.name for name in CATALOG for scenario in find_scenarios(name)]
    assert len(set(names)) == len(names)
    assert all(scenario.name.split()[0] == name for name in CATALOG for scenario in find_scenarios(name))


def test_a_workload_is_found_in_small_letters_and_an_unknown_one_names_those_there_are() -> None:
    assert find_scenarios("w3") == find_scenarios("W3")
    with pytest.raises(OptionError, match=r"no built-in scenario 'W12'.*W1, .*W11, A1, .*A6"):
        find_scenarios("W12")


@pytest.mark.parametrize("name", [n for n in CATALOG if n not in ("W5", "W6", "W7", "A3", "A4", "A5")])
def test_every_workload_passes_its_own_check(name: str) -> None:
    for scenario in find_scenarios(name):
        check_scenario(scenario)


def test_the_ideal_is_there_only_where_it_can_be_known() -> None:
    there = {name for name in CATALOG if any(t.policy == IDEAL for s in find_scenarios(name) for t in tasks(s))}
    assert there == {"W1", "W2", "W3", "W4", "W5", "W8"}
    assert [has_ideal(s) for s in find_scenarios("W9")] == [True]  # the command adds it
    assert not any(has_ideal(s) for name in ("W6", "W7", "W10", "W11", "A1", "A6") for s in find_scenarios(name))


def test_w11_offers_a_million_requests_a_second() -> None:
    (scenario,) = find_scenarios("W11")
    assert scenario.loads[0] * scenario.capacity / scenario.workload.sizes.mean == pytest.approx(1e6)


def test_in_a1_to_a6_more_replicas_are_allowed_than_there_is_work_for() -> None:
    for name in (name for name in CATALOG if name.startswith("A")):
        for scenario in find_scenarios(name):
            assert scenario.autoscale is not None
            assert scenario.slo is not None
            shape = scenario.workload.shape
            highest = max(1.0, {"diurnal": shape.high, "spike": shape.factor}.get(shape.kind, 1.0))
            assert scenario.autoscale.max > 10 * highest * scenario.loads[0]


def test_a_trace_gets_a_fleet_that_suits_its_format(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,1,1\n", encoding="utf-8")
    scenario = scenario_for_trace(path)
    assert scenario.name == "mine.csv"
    assert scenario.fleet == find_scenarios("W7")[0].fleet
    assert scenario.workload.trace is not None
    assert scenario.workload.trace.file == str(path)
