"""Who the replicas are: what several sources say, put together."""

from __future__ import annotations

import pytest

from steelyard.config import Config, ReplicaConfig, parse_config
from steelyard.control.fleet.registry import ADDED, DISCOVERED, REGISTERED, ReplicaRegistry, difference

LISTED = "models: {m: {replicas: [{id: a, url: 'http://a:1'}, {id: b, url: 'http://b:1', weight: 2}]}, n: {}}"


def config(text: str = LISTED) -> Config:
    return parse_config(text)


def replica(id: str, url: str = "", weight: float = 1.0, **more: str) -> ReplicaConfig:
    return ReplicaConfig(url=url or f"http://{id}:1", id=id, weight=weight, **more)


def sources(registry: ReplicaRegistry, model: str = "m") -> dict[str, str]:
    return {id: member.source for id, member in registry.members(model).items()}


def test_at_first_there_is_what_the_configuration_lists() -> None:
    registry = ReplicaRegistry(config())
    assert sources(registry) == {"a": "config", "b": "config"}
    assert registry.effective_config(registry.config) == registry.config


def test_every_source_adds_its_own_and_says_where_each_is_from() -> None:
    registry = ReplicaRegistry(config())
    registry.set_source(DISCOVERED, "m", [replica("c")])
    registry.set_source(REGISTERED, "m", [replica("d")])
    registry.set_source(ADDED, "m", [replica("e")])
    assert sources(registry) == {"a": "config", "b": "config", "c": "discovery", "d": "registration", "e": "admin"}
    assert sources(registry, "n") == {}
    assert [r.name for r in registry.effective_config(registry.config).models["m"].replicas] == [
        "a",
        "b",
        "c",
        "d",
        "e",
    ]


def test_a_source_names_exactly_what_it_said_last() -> None:
    registry = ReplicaRegistry(config())
    registry.set_source(DISCOVERED, "m", [replica("c"), replica("d")])
    registry.set_source(DISCOVERED, "m", (r for r in [replica("d")]))
    assert sources(registry) == {"a": "config", "b": "config", "d": "discovery"}
    registry.set_source(DISCOVERED, "m", ())
    assert sources(registry) == {"a": "config", "b": "config"}


@pytest.mark.parametrize(
    ("first", "second"),
    [(DISCOVERED, REGISTERED), (DISCOVERED, ADDED), (REGISTERED, ADDED)],
    ids=lambda source: str(source),
)
def test_of_two_that_name_the_same_one_the_first_is_believed(first: str, second: str) -> None:
    registry = ReplicaRegistry(config())
    for said in ((second, first), (first, second)):
        for source in said:
            registry.set_source(source, "n", [replica("x", url=f"http://{source}:1")])
        assert registry.members("n")["x"] == (replica("x", url=f"http://{first}:1"), first)
    registry.set_source(first, "n", ())
    assert registry.members("n")["x"].source == second


def test_the_configuration_is_believed_before_all_others() -> None:
    registry = ReplicaRegistry(config())
    for source in (DISCOVERED, REGISTERED, ADDED):
        registry.set_source(source, "m", [replica("a", url="http://elsewhere:1")])
    assert registry.members("m")["a"] == (replica("a"), "config")


def test_a_name_that_is_not_given_is_the_address() -> None:
    registry = ReplicaRegistry(config("models: {n: {replicas: [{url: 'http://10.0.0.1:80'}]}}"))
    registry.set_source(DISCOVERED, "n", [replica("10.0.0.1:80", url="http://10.0.0.2:80")])
    assert sources(registry, "n") == {"10.0.0.1:80": "config"}


def test_a_weight_that_an_operator_set_holds_whoever_names_the_replica() -> None:
    registry = ReplicaRegistry(config())
    registry.weight_overrides["m", "a"] = 7.0
    registry.weight_overrides["m", "c"] = 3.0
    registry.set_source(DISCOVERED, "m", [replica("c", zone="z")])
    weights = {r.name: r.weight for r in registry.effective_config(registry.config).models["m"].replicas}
    assert weights == {"a": 7.0, "b": 2.0, "c": 3.0}
    assert registry.members("m")["c"].settings.zone == "z"
    registry.config = config(LISTED.replace("weight: 2", "weight: 4"))
    assert {r.name: r.weight for r in registry.model("m").replicas} == {"a": 7.0, "b": 4.0, "c": 3.0}


def test_what_an_operator_set_of_a_model_holds_over_reloads() -> None:
    registry = ReplicaRegistry(config())
    registry.model_overrides["m"] = {"policy": "round_robin", "policy_options": {}, "concurrency": 2}
    after = registry.effective_config(config(LISTED.replace("weight: 2", "weight: 4")))
    assert (after.models["m"].policy, after.models["m"].concurrency) == ("round_robin", 2)
    assert after.models["n"].policy == "least_work"
    assert after.models["m"].replicas[1].weight == 4.0


def test_the_effective_configuration_is_of_the_one_that_is_asked_for() -> None:
    registry = ReplicaRegistry(config())
    registry.set_source(DISCOVERED, "m", [replica("c")])
    coming = config("models: {m: {replicas: [{id: z, url: 'http://z:1'}]}}")
    assert [r.name for r in registry.effective_config(coming).models["m"].replicas] == ["z", "c"]
    assert sources(registry) == {"a": "config", "b": "config", "c": "discovery"}


def test_of_models_that_are_gone_nothing_is_kept() -> None:
    registry = ReplicaRegistry(config())
    for source in (DISCOVERED, REGISTERED, ADDED):
        registry.set_source(source, "m", [replica("x")])
        registry.set_source(source, "n", [replica("y")])
    registry.weight_overrides = {("m", "x"): 2.0, ("n", "y"): 2.0}
    registry.model_overrides = {"m": {"concurrency": 1}, "n": {"concurrency": 1}}
    registry.prune({"n": None})
    assert [registry.from_source(source, "m") for source in (DISCOVERED, REGISTERED, ADDED)] == [(), (), ()]
    assert [len(registry.from_source(source, "n")) for source in (DISCOVERED, REGISTERED, ADDED)] == [1, 1, 1]
    assert (registry.weight_overrides, registry.model_overrides) == ({("n", "y"): 2.0}, {"n": {"concurrency": 1}})


def test_the_difference_is_who_is_gone_and_who_is_new_or_changed() -> None:
    a, b, c = replica("a"), replica("b"), replica("c")
    assert difference([a, b], [a, b]) == ((), ())
    assert difference([a, b], [b, a]) == ((), ())
    assert difference([a, b], [b, c]) == (("a",), (c,))
    assert difference([a], [replica("a", weight=2.0)]) == ((), (replica("a", weight=2.0),))
    assert difference([a], [replica("a", url="http://z:1")]) == ((), (replica("a", url="http://z:1"),))
    assert difference([a], []) == (("a",), ())
