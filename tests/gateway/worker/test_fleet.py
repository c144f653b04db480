"""A configuration put into force: only what changed is changed, and what fails changes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steelyard.config import Config, parse_config
from steelyard.core.policies.base import Policy
from steelyard.core.policies.round_robin import RoundRobin
from steelyard.core.replica import Replica
from steelyard.gateway.worker.worker_report import worker_report

from ..reading import answer, read_answer, request
from ..stage import Stage

BASE = "models: {m: {replicas: [{url: 'http://a:1'}, {url: 'http://b:1', weight: 2}]}}"


def state(stage: Stage) -> dict[str, Any]:
    """All that a configuration decides."""
    balancer = stage.balancer
    return {
        "pools": {
            name: (id(balancer.pool(name)), balancer.pool(name).options, id(balancer.pool(name).policy))
            for name in balancer.models
        },
        "replicas": {
            (name, replica.id): (id(replica), replica.weight, replica.context.pool)
            for name in balancer.models
            for replica in balancer.pool(name).replicas.values()
        },
        "endpoints": {key: endpoint.references for key, endpoint in stage.proxy.connection_pools.items()},
        "trust_rule": id(stage.proxy.trust_rule),
        "router": id(stage.proxy.router),
        "accounts": {name: id(account) for name, account in stage.proxy.recorder.stats.items()},
    }


def replicas(stage: Stage, model: str = "m") -> dict[str, Replica]:
    return stage.balancer.pool(model).replicas


def test_the_same_again_changes_nothing(staged: Callable[..., Stage]) -> None:
    stage = staged(BASE)
    before = state(stage)
    stage.reload(BASE)
    after = state(stage)
    for part in ("pools", "replicas", "endpoints", "accounts"):
        assert after[part] == before[part]


def test_added_removed_and_reweighted(staged: Callable[..., Stage]) -> None:
    stage = staged(BASE)
    a, b = replicas(stage).values()
    stage.reload("models: {m: {replicas: [{url: 'http://b:1', weight: 5}, {url: 'http://c:1'}]}}")
    assert list(replicas(stage)) == ["b:1", "c:1"]
    assert replicas(stage)["b:1"] is b
    assert (b.weight, a.state.value) == (5, "gone")
    assert sorted(str(endpoint.address) for endpoint in stage.proxy.connection_pools.values()) == ["b:1", "c:1"]


def test_what_was_learned_stays(staged: Callable[..., Stage]) -> None:
    stage = staged(BASE)
    client = stage.client()
    for _ in range(20):
        client.says(request())
        replica = stage.replica()
        stage.pass_time(0.01)
        replica.says(answer())
    pool = stage.balancer.pool("m")
    seen, ok = pool.estimator.samples, stage.account("m").ok
    stage.reload(BASE.replace("{m: {", "{m: {policy: round_robin, concurrency: 3, "))
    assert stage.balancer.pool("m") is pool
    assert pool.estimator.samples == seen
    assert stage.account("m").ok == ok == 20
    assert isinstance(pool.policy, RoundRobin)
    assert pool.limit == 3


def test_a_policy_is_switched_only_if_it_is_another(staged: Callable[..., Stage]) -> None:
    stage = staged(BASE)
    policy = stage.balancer.pool("m").policy
    stage.reload(BASE.replace("weight: 2", "weight: 3"))
    assert stage.balancer.pool("m").policy is policy
    stage.reload(BASE.replace("{m: {", "{m: {policy: power_of_two, "))
    assert stage.balancer.pool("m").policy is not policy


def test_another_url_under_the_same_name_is_another_replica(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {replicas: [{id: r, url: 'http://a:1'}]}}")
    old = replicas(stage)["r"]
    client = stage.client()
    client.says(request())
    wire = stage.replica()
    stage.reload("models: {m: {replicas: [{id: r, url: 'http://b:1'}]}}")
    assert replicas(stage)["r"] is not old
    other = stage.client()
    other.says(request())
    new = stage.accept("b:1")
    wire.says(answer(b"old"))
    new.says(answer(b"new"))
    assert (read_answer(client.hears()).body, read_answer(other.hears()).body) == (b"old", b"new")
    stage.check_idle(counted=2)


def test_another_zone_is_taken_in(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {replicas: [{url: 'http://a:1', zone: east}]}}")
    stage.reload("models: {m: {replicas: [{url: 'http://a:1', zone: west}]}}")
    assert replicas(stage)["a:1"].zone == "west"


def test_models_that_share_a_server_share_its_connections(staged: Callable[..., Stage]) -> None:
    both = "models: {m: {replicas: [{url: 'http://a:1'}]}, n: {replicas: [{url: 'http://a:1'}]}}"
    stage = staged(both)
    (endpoint,) = stage.proxy.connection_pools.values()
    client = stage.client()
    for model in "mn":
        client.says(request("GET /", f"steelyard-model: {model}"))
        stage.replica().says(answer())
    assert len(stage.loop.wires) == 1
    stage.reload("models: {n: {replicas: [{url: 'http://a:1'}]}}")
    assert not endpoint.closed
    client.says(request("GET /", "steelyard-model: n"))
    stage.replica().says(answer())
    assert len(stage.loop.wires) == 1
    stage.reload("models: {n: {replicas: []}}")
    assert stage.loop.wires[0].closed
    assert stage.proxy.connection_pools == {}
    stage.check_idle()


class Grumpy(Policy):
    """A user's own policy that does not like to be put in charge."""

    def attach(self, pool: object) -> None:
        raise RuntimeError("not today")


def with_model(config: Config, **changes: Any) -> Config:
    """Past the checks of configuration files: what a worker is sent is believed, and must still do no harm."""
    model = msgspec.structs.replace(config.models["m"], **changes)
    return msgspec.structs.replace(config, models={"new": config.models["m"], "m": model})


@pytest.mark.parametrize(
    "broken",
    [
        lambda config: with_model(config, policy="nonsense"),
        lambda config: with_model(config, policy="consistent_hash", policy_options={"replicas": -1}),
        lambda config: with_model(config, policy=f"{__name__}:Grumpy"),
        lambda config: with_model(config, dialect="nonsense"),
        lambda config: with_model(config, queue=-1),
        lambda config: with_model(config, replicas=(msgspec.structs.replace(config.models["m"].replicas[0], url="x"),)),
        lambda config: with_model(
            config, replicas=(msgspec.structs.replace(config.models["m"].replicas[0], weight=2e6),)
        ),
        lambda config: msgspec.structs.replace(config, trusted=("nowhere",)),
        lambda config: msgspec.structs.replace(
            with_model(config, policy="nonsense"), models={"other": with_model(config, policy="nonsense").models["m"]}
        ),
    ],
)
def test_what_fails_changes_nothing(staged: Callable[..., Stage], broken: Callable[[Config], Config]) -> None:
    stage = staged(BASE)
    client = stage.client()
    client.says(request())
    wire = stage.replica()
    before = state(stage)
    with pytest.raises(Exception):  # noqa: B017, PT011
        stage.fleet.apply(broken(stage.config), {}, stage.loop.now)
    assert state(stage) == before
    wire.says(answer(b"ok"))
    assert read_answer(client.hears()).body == b"ok"
    stage.reload(BASE.replace("weight: 2", "weight: 7"))
    assert replicas(stage)["b:1"].weight == 7
    stage.check_idle(counted=1)


def test_certificates_that_are_missing_change_nothing(staged: Callable[..., Stage], tmp_path: Path) -> None:
    stage = staged(BASE)
    before = state(stage)
    config = parse_config(f"models: {{m: {{tls: {{ca: '{tmp_path}/none'}}, replicas: [{{url: 'https://a:1'}}]}}}}")
    with pytest.raises(OSError, match="No such file"):
        stage.fleet.apply(config, {}, stage.loop.now)
    assert state(stage) == before


# ---------------------------------------------------------------------- reports


def test_a_report_says_what_is_so(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {concurrency: 1, replicas: [{url: 'http://a:1'}]}, n: {replicas: []}}")
    clients = [stage.client() for _ in range(3)]
    for client in clients:
        client.says(request("GET /", "steelyard-model: m"))
    replica = stage.replica()
    report = worker_report(stage.proxy, stage.loop.now, decides=True)
    m, n = report.models
    assert (report.connections, m.model, m.in_flight, m.waiting, n.in_flight) == (3, "m", 1, 2, 0)
    (only,) = report.replicas
    assert (only.model, only.id, only.state, only.in_flight, only.dispatched) == ("m", "a:1", "ready", 1, 1)
    stage.pass_time(0.1)
    replica.says(answer())
    stage.replica().says(answer(b"", status="404 No"))
    clients[2].breaks()
    report = worker_report(stage.proxy, stage.loop.now, decides=True)
    assert report.models[0].outcomes == {"ok": 1, "client_error": 1, "failed": 0, "refused": 0, "cancelled": 1}
    assert list(report.models[0].latency.values()) == [1]
    assert (report.connections, report.replicas[0].in_flight, report.replicas[0].dispatched) == (2, 0, 3)


def test_a_report_is_a_copy(staged: Callable[..., Stage]) -> None:
    stage = staged(BASE)
    report = worker_report(stage.proxy, stage.loop.now, decides=True)
    client = stage.client()
    client.says(request())
    stage.replica().says(answer())
    assert report.models[0].outcomes["ok"] == 0
    assert report.models[0].latency == {}
