"""Scalers as they are named in a scenario and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.core.errors import OptionError
from steelyard.core.scalers.base import ScalingMetrics
from steelyard.documents import DocumentError, Seconds
from steelyard.simulate.scenario.dynamics import Autoscale
from steelyard.simulate.scenario.file import load_scenarios, to_yaml
from steelyard.simulate.scenario.scaler_spec import base_scaler, initial_replicas, make_scaler, split_scaler
from steelyard.simulate.scenario.schema import ReplicaGroup, Scenario


def test_a_name_carries_its_options() -> None:
    assert split_scaler("work") == ("work", {})
    assert split_scaler("kpa@target=0.5") == ("kpa", {"target": 0.5})
    assert split_scaler("kpa@target=0.5@window=30") == ("kpa", {"target": 0.5, "window": 30})
    assert split_scaler("fixed@8") == ("fixed", {"replicas": 8})
    assert split_scaler("my.module:Mine@deep=true") == ("my.module:Mine", {"deep": True})
    assert base_scaler("kpa@target=0.5") == base_scaler("kpa") == "kpa"


@pytest.mark.parametrize(
    "text", ["fixed", "fixed@", "fixed@x", "fixed@1@2", "kpa@", "kpa@0.5", "kpa@target=", "kpa@=1"]
)
def test_a_name_that_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(OptionError, match=f"scaler {text!r}"):
        split_scaler(text)


def test_an_unknown_scaler_or_option_is_told() -> None:
    with pytest.raises(OptionError, match="nobody"):
        make_scaler("nobody", Autoscale())
    with pytest.raises(OptionError, match="colour"):
        make_scaler("work@colour=3", Autoscale())


def test_options_of_the_scenario_hold_unless_the_name_says_otherwise() -> None:
    busy = [ScalingMetrics(now=float(n), ready=1, running=14, slots=1.0, arrived=n) for n in range(200)]
    autoscale = Autoscale(options={"kpa": {"target": 0.5}})
    plain, other = make_scaler("kpa", autoscale), make_scaler("kpa@target=1.0", autoscale)
    said = [(plain.decide(seen).replicas, other.decide(seen).replicas) for seen in busy][-1]
    assert said == (28, 14)


def test_a_fixed_fleet_says_the_same_whatever_it_sees() -> None:
    scaling = make_scaler("fixed@8", Autoscale(max=3))
    assert scaling.decide(ScalingMetrics(now=1.0)).replicas == 8
    assert initial_replicas("fixed@8", Autoscale(start=2)) == 8
    assert initial_replicas("work", Autoscale(start=2)) == 2


def test_a_scaled_scenario_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    scenario = Scenario(
        name="mine",
        loads=(12.0,),
        fleet=(ReplicaGroup(slots=4),),
        slo=Seconds(2.0),
        autoscale=Autoscale(scalers=("work", "fixed@3"), options={"work": {"headroom": 2.0}}, cold_start=Seconds(7)),
    )
    path = tmp_path / "mine.yaml"
    for full in (False, True):
        path.write_text(to_yaml(scenario, full=full))
        assert load_scenarios(path) == [scenario]


def test_a_wrong_scaler_in_a_file_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("loads: [2]\nfleet: [{}]\nautoscale:\n  scalers:\n    - work\n    - nobody\n")
    with pytest.raises(DocumentError, match=r"mine.yaml:6: autoscale.scalers\[1\]: .*nobody"):
        load_scenarios(path)
