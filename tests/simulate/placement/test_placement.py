"""Models that are loaded and unloaded as they are wanted, by core.placement, in the simulator."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.documents import Seconds
from steelyard.simulate import run
from steelyard.simulate.engine.result import RunResult
from steelyard.simulate.placement.placer import MODEL_BYTES, SimulatedPlacer, perfect_placement
from steelyard.simulate.report.summary import best_p99, summarise
from steelyard.simulate.run import (
    Task,
    base_policy,
    check_scenario,
    is_reference,
    run_task,
    split_placement,
    split_policy,
)
from steelyard.simulate.scenario.catalog import find_scenarios
from steelyard.simulate.scenario.schema import Balancers, Batching, Fault, ModelMix, ReplicaGroup, Scenario, Workload

from ..runs import made_up
from ..watched import everything

PLACED = "least_work@1+placement"
PERFECT = "least_work@1+perfect"


def small(**changes: Any) -> Scenario:
    """Six models on three servers of three places each."""
    fields: dict[str, Any] = {
        "requests": 600,
        "loads": (0.5,),
        "fleet": (ReplicaGroup(count=3, models=3, load_time=Seconds(0.5)),),
        "workload": Workload(models=ModelMix(count=6)),
        **changes,
    }
    return Scenario(**fields)


class Watcher(SimulatedPlacer):
    """Counts the models on each server, at each change."""

    made: list[Watcher]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.most: Counter[str] = Counter()
        self.made.append(self)

    def _report(self, *args: Any) -> None:
        super()._report(*args)
        for name, device in self._ledger.devices.items():
            self.most[name] = max(self.most[name], self._ledger.reserved(device) // MODEL_BYTES)


@pytest.fixture
def watchers(monkeypatch: pytest.MonkeyPatch) -> list[Watcher]:
    Watcher.made = []
    monkeypatch.setattr(run, "SimulatedPlacer", Watcher)
    return Watcher.made


def served(scenario: Scenario, policy: str, load: float = 0.5) -> RunResult:
    return run_task(Task(scenario, policy, load, 1))


@pytest.mark.parametrize("policy", [PLACED, PERFECT, "least_connections+placement", "round_robin@2+placement"])
def test_every_request_is_answered_and_again_the_same(policy: str) -> None:
    result = served(small(), policy)
    assert result.measured_requests == result.latency.count
    assert sum(result.served.values()) == 600, "a load is no request"
    assert everything(served(small(), policy)) == everything(result)


@pytest.mark.parametrize(
    "group",
    [
        ReplicaGroup(count=3, models=1, load_time=Seconds(0.2)),
        ReplicaGroup(count=2, models=4, slots=4, load_time=Seconds(0.2)),
        ReplicaGroup(count=3, models=2, slots=8, batching=Batching(slope=0.1), load_time=Seconds(0.2)),
        ReplicaGroup(count=6, models=6),
    ],
    ids=["one fits", "slots", "batching", "all fit"],
)
def test_whatever_the_fleet_nobody_is_lost_and_no_server_holds_too_much(
    group: ReplicaGroup, watchers: list[Watcher]
) -> None:
    result = served(small(fleet=(group,)), PLACED, 0.3)
    assert result.measured_requests == result.latency.count > 0
    (placer,) = watchers
    assert placer.most
    assert all(count <= group.models for count in placer.most.values())


def test_a_model_is_loaded_as_often_as_needed_and_no_more(watchers: list[Watcher]) -> None:
    served(small(requests=2000), PLACED)
    (placer,) = watchers
    assert 6 <= placer.loads <= 12, "nine places for six models: few are ever moved"


def test_who_knows_everything_loads_nothing(watchers: list[Watcher]) -> None:
    served(small(), PERFECT)
    assert watchers[0].loads == 0


def test_placement_serves_more_than_servers_that_load_by_themselves_and_about_as_much_as_one_who_knows() -> None:
    scenario = msgspec.structs.replace(find_scenarios("W10")[0], requests=2000)
    lru, perfect, placed = (served(scenario, policy) for policy in ("least_work@1", PERFECT, PLACED))
    assert placed.throughput > 2 * lru.throughput
    assert placed.throughput > 0.9 * perfect.throughput
    assert placed.latency.quantile(0.99) < lru.latency.quantile(0.99) / 5


# ---------------------------------------------------------------------- names


def test_who_places_is_part_of_the_name() -> None:
    assert split_placement("least_work@1+placement") == ("least_work@1", "placement")
    assert split_placement("least_work@1") == ("least_work@1", "")
    assert split_policy("least_work@auto+perfect") == ("least_work", "auto")
    assert base_policy("least_work@1+placement") == "least_work+placement"
    assert base_policy("least_work@1") == "least_work"
    assert [is_reference(p) for p in ("ideal", PERFECT, PLACED, "least_work")] == [True, True, False, False]


def test_a_placement_that_is_none_is_told_with_those_there_are() -> None:
    with pytest.raises(OptionError, match=r"policy 'least_work\+magic': after \+ comes placement or perfect"):
        check_scenario(small(policies=("least_work+magic",)))


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"fleet": (ReplicaGroup(count=3),)}, "fleet"),
        ({"workload": Workload()}, "workload.models.count above 1"),
        ({"balancers": Balancers(count=2)}, "one balancer"),
        ({"faults": (Fault(kind="crash"),)}, "no faults"),
    ],
)
def test_where_models_cannot_be_placed_it_is_told_what_is_missing(changes: dict[str, Any], wanted: str) -> None:
    with pytest.raises(OptionError, match=rf"placing models needs .*{wanted}"):
        check_scenario(small(policies=(PLACED,), **changes))


def test_one_who_knows_is_a_yardstick_and_wins_nothing() -> None:
    runs = [made_up(PERFECT, 1, [1.0] * 9), made_up(PLACED, 1, [2.0] * 9), made_up("least_work@1", 1, [9.0] * 9)]
    rows = summarise(runs)
    winner = best_p99(rows)
    assert winner is not None
    assert winner.policy == PLACED
    assert winner.p99_to_ideal is not None
    assert winner.p99_to_ideal.mean == pytest.approx(2.0, rel=0.05)


# ---------------------------------------------------------------------- one who knows


def test_popular_models_get_more_copies_and_servers_about_the_same_to_do() -> None:
    weights = [1 / (k + 1) for k in range(20)]
    shares = [w / sum(weights) for w in weights]
    held = perfect_placement(shares, [4] * 8)
    copies = Counter(model for models in held for model in models)
    assert [copies[m] for m in range(20)] == [4, 3, *[2] * 7, *[1] * 11]
    work = [sum(shares[m] / copies[m] for m in models) for models in held]
    assert max(work) < 1.15 * min(work)


@given(
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12),
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
)
def test_no_room_is_left_that_could_be_used_and_none_is_overdrawn(shares: list[float], rooms: list[int]) -> None:
    held = perfect_placement(shares, rooms)
    for models, room in zip(held, rooms, strict=True):
        assert len(models) <= room
        assert len(set(models)) == len(models)
    there = {model for models in held for model in models}
    assert len(there) >= min(len(shares), sum(rooms)) or len(there) == len(shares)
