from __future__ import annotations

from steelyard.documents import Seconds
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.report.findings import describe, policy_finding, warnings
from steelyard.simulate.report.summary import summarise
from steelyard.simulate.scenario.catalog import CATALOG, find_scenarios
from steelyard.simulate.scenario.schema import Fault, ReplicaGroup, Scenario

from ..runs import made_up


def found(runs: list[RunResult], with_slo: tuple[str, ...] = ()) -> str:
    return policy_finding(summarise(runs, with_slo), runs)


def test_every_built_in_scenario_is_described_in_a_sentence() -> None:
    for name in CATALOG:
        for scenario in find_scenarios(name):
            text = describe(scenario)
            assert text.endswith(".")
            assert "replica" in text


def test_the_fleet_and_the_faults_are_named() -> None:
    fault = Fault(kind="slow", replica=1, at=Seconds(30), duration=Seconds(10))
    text = describe(Scenario(fleet=(ReplicaGroup(count=2), ReplicaGroup(speed=4)), faults=(fault,)))
    assert text.startswith("2 replicas of speed 1, 1 replica of speed 4; exponential work of 50 ms")
    assert "replica r1 is 5× slower from 30 s for 10 s" in text


def test_engines_and_their_traffic_are_named() -> None:
    text = describe(find_scenarios("W6")[1])
    assert text.startswith(
        "4 replicas with an engine 8b-h100, 4 replicas with an engine 8b-a100; conversations of 5 turns"
    )
    assert "SLO 2 s to the first token, 100 ms per further one" in text


def test_a_model_of_a_peer_is_marked_where_it_wins() -> None:
    runs = [made_up("dynamo_cost", 1, [0.1]), made_up("random", 1, [0.2])]
    assert "dynamo_cost (model) has the lowest p99" in found(runs)


def test_a_sure_winner() -> None:
    runs = [made_up("least_work@1", n, [0.1 * n]) for n in (1, 2, 3)]
    runs += [made_up("random", n, [0.2 * n]) for n in (1, 2, 3)]
    assert found(runs) == (
        "At 50 % load, least_work@1 has the lowest p99: 200 ms. "
        "Seed by seed that is 50 % (± 0) below the best other policy, random."
    )


def test_the_same_policy_with_another_concurrency_is_no_rival() -> None:
    runs = [made_up("least_work@1", 1, [0.1]), made_up("least_work@auto", 1, [0.11]), made_up("random", 1, [0.2])]
    assert "the best other policy, random; one seed cannot say" in found(runs)


def test_seeds_that_cannot_tell() -> None:
    runs = [made_up("a", 1, [0.1]), made_up("a", 2, [0.3]), made_up("b", 1, [0.2]), made_up("b", 2, [0.25])]
    assert "level with it as far as 2 seeds can tell" in found(runs)


def test_an_slo_comes_before_p99() -> None:
    runs = [made_up("a", 1, [0.1] * 100, met=50), made_up("b", 1, [0.2] * 100, met=90)]
    assert "b meets its SLO most often: 90.0 % of all requests; the best other policy, a, 50.0 %" in found(runs, ("s",))


def test_nothing_answered_and_no_rival() -> None:
    assert "no request was answered" in found([made_up("a", 1, [], refused=1)])
    assert found([made_up("a", 1, [0.1], load=0.0)]) == "At the recorded load, a has the lowest p99: 99.8 ms."


def test_warned_of_a_fault_after_the_end_and_of_too_few_requests() -> None:
    scenario = Scenario(faults=(Fault(kind="crash", at=Seconds(30)),))
    late, few = warnings(scenario, [made_up("a", 1, [0.1])])
    assert "comes after the end of a run (10.0 s)" in late
    assert "only 1 answered" in few
    assert warnings(Scenario(), [made_up("a", 1, [0.1] * 1000)]) == []
