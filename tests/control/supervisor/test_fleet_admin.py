"""What operators and replicas ask of a supervisor that runs, with real worker processes (that carry no request)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf
from typing import Any, cast

import msgspec
import pytest

from steelyard.addresses import listen_address
from steelyard.config import Config, ReplicaConfig
from steelyard.control.errors import ConflictError, InvalidError, NotFoundError
from steelyard.control.fleet.active_config import MIN_LEDGER_COLUMNS
from steelyard.control.fleet.registry import DISCOVERED, STARTED
from steelyard.control.observability.views import ReplicaView, ScalingStepView, ScalingView
from steelyard.control.supervisor.fleet_admin import FleetAdmin
from steelyard.control.supervisor.supervisor import Supervisor
from steelyard.core.errors import SteelyardError
from tests.harness.processes import free_port

from ..admin.fake_operations import shown
from ..driving import ask, run, serving, supervised, until
from ..fakes import made

UNPROBED = (
    "listen: 127.0.0.1:0\nmodels:\n  m: {health: {enabled: false}, replicas: [{id: a, url: 'http://127.0.0.1:9'}]}\n"
)
OTHER = "http://127.0.0.1:10"


class Source:
    """What the file says, without a file."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self) -> Config:
        return made(self.text)


class Operated:
    def __init__(self, supervisor: Supervisor, source: Source) -> None:
        self.supervisor = supervisor
        self.source = source
        self.fleet = supervisor.fleet
        self.asked = FleetAdmin(
            self.fleet, supervisor.controllers, supervisor.workers, supervisor.reload_config, supervisor.live_feed
        )

    def views(self, model: str = "m") -> dict[str, ReplicaView]:
        return {view.id: view for view in self.asked.fleet().replicas if view.model == model}

    def happened(self) -> list[str]:
        return [f"{h.model}/{h.replica} {h.message}" for h in self.asked.events()]

    async def shown(self, id: str) -> ReplicaView:
        await until(lambda: id in self.views())
        return self.views()[id]


@asynccontextmanager
async def operated(text: str = UNPROBED, workers: int = 1) -> AsyncIterator[Operated]:
    source = Source(f"workers: {workers}\n{text}")
    async with supervised(source(), reread=source) as supervisor:
        await until(lambda: len(serving(supervisor)) == workers)
        yield Operated(supervisor, source)


def operate(scene: Callable[[Operated], Awaitable[None]], text: str = UNPROBED, workers: int = 1) -> None:
    async def work() -> None:
        async with operated(text, workers) as stage:
            await scene(stage)

    run(work())


def replica(id: str = "b", url: str = OTHER, **more: Any) -> ReplicaConfig:
    return ReplicaConfig(url=url, id=id, **more)


async def refusal(work: Awaitable[Any]) -> SteelyardError:
    with pytest.raises(SteelyardError) as found:
        await work
    return found.value


# ---------------------------------------------------------------------- to look at


def test_a_supervisor_that_serves_says_so() -> None:
    async def scene(stage: Operated) -> None:
        assert stage.asked.is_live()
        assert stage.asked.readiness_problems() == []
        assert stage.views()["a"].state == "ready"

    operate(scene)


def test_the_fleet_in_numbers() -> None:
    async def scene(stage: Operated) -> None:
        view, numbers = stage.asked.metrics()
        assert [model.model for model in view.models] == list(numbers.models) == ["m"]
        assert list(numbers.replicas) == [("m", "a")]
        assert view.balancer is not None
        assert set(numbers.processes) == {view.balancer.pid, *(worker.pid for worker in view.workers)}
        assert (len(view.workers), numbers.unexpected_exits, numbers.unexpected_balancer_exits) == (2, 0, 0)
        assert numbers.supervisor is not None
        assert numbers.supervisor.cpu > 0.0

    operate(scene, workers=2)


def test_without_a_ready_replica_it_should_get_no_traffic() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.drain("m", "a")
        assert stage.asked.is_live()
        assert stage.asked.readiness_problems() == ["no replica of m is ready"]

    operate(scene)


@pytest.mark.parametrize(("model", "id"), [("m", "z"), ("z", "a")])
def test_nobody_we_know_is_one_clear_error(model: str, id: str) -> None:
    async def scene(stage: Operated) -> None:
        asked = stage.asked
        for work in (
            asked.remove(model, id),
            asked.drain(model, id),
            asked.undrain(model, id),
            asked.set_weight(model, id, 2.0),
            asked.deregister(model, id, ""),
        ):
            assert isinstance(await refusal(work), NotFoundError)
        if model == "z":
            assert isinstance(await refusal(asked.add(model, replica())), NotFoundError)
            assert isinstance(await refusal(asked.register(model, replica(), 5.0, "x")), NotFoundError)
            assert isinstance(await refusal(asked.set_model(model, {"concurrency": 1})), NotFoundError)

    operate(scene)


# ---------------------------------------------------------------------- replicas


def test_a_replica_is_added_and_removed_again() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.add("m", replica(weight=2.0, zone="z"))
        view = await stage.shown("b")
        assert (view.url, view.source, view.state, view.weight, view.zone) == (OTHER, "admin", "ready", 2.0, "z")
        await stage.asked.remove("m", "b")
        assert set(stage.views()) == {"a"}
        await until(lambda: [r.name for r in stage.supervisor.config.models["m"].replicas] == ["a"])
        assert f"m/b added: {OTHER}" in stage.happened()
        await until(lambda: "m/b removed" in stage.happened())

    operate(scene)


@pytest.mark.parametrize("source", ["config", "admin", "registration", "discovery"])
def test_a_name_is_given_once(source: str) -> None:
    async def scene(stage: Operated) -> None:
        name = "a"
        if source != "config":
            name = "b"
            if source == "admin":
                await stage.asked.add("m", replica())
            elif source == "registration":
                await stage.asked.register("m", replica(), 30.0, "x")
            else:
                stage.fleet.members.discovered("m", (replica(),))
        assert (await stage.shown(name)).source == source
        again = replica(name, "http://127.0.0.1:11")
        assert isinstance(await refusal(stage.asked.add("m", again)), ConflictError)
        if source != "registration":
            assert isinstance(await refusal(stage.asked.register("m", again, 5.0, "x")), ConflictError)
        assert stage.views()[name].url != again.url

    operate(scene)


@pytest.mark.parametrize("source", ["config", "discovery"])
def test_what_others_name_is_taken_out_there(source: str) -> None:
    async def scene(stage: Operated) -> None:
        stage.fleet.members.discovered("m", (replica(),))
        name = "a" if source == "config" else "b"
        await stage.shown(name)
        assert isinstance(await refusal(stage.asked.remove("m", name)), ConflictError)
        assert name in stage.views()

    operate(scene)


@pytest.mark.parametrize("url", ["", "127.0.0.1:10", "ftp://127.0.0.1:10", "http://", "http://127.0.0.1:0x10"])
def test_an_address_that_cannot_be_is_refused_with_its_key(url: str) -> None:
    async def scene(stage: Operated) -> None:
        for work in (
            stage.asked.add("m", replica(url=url)),
            stage.asked.register("m", replica(url=url), 5.0, "x"),
        ):
            problem = await refusal(work)
            assert isinstance(problem, InvalidError)
            assert problem.key == "url"
        assert set(stage.views()) == {"a"}

    operate(scene)


def test_the_gateway_is_no_replica_of_itself() -> None:
    async def scene(stage: Operated) -> None:
        own = replica(url=f"http://127.0.0.1:{port}")
        assert isinstance(await refusal(stage.asked.add("m", own)), InvalidError)
        assert isinstance(await refusal(stage.asked.register("m", own, 5.0, "x")), InvalidError)

    port = free_port()
    operate(scene, UNPROBED.replace("127.0.0.1:0", f"127.0.0.1:{port}"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
def test_the_admin_address_is_no_replica(host: str) -> None:
    async def scene(stage: Operated) -> None:
        stage.fleet.members.admin_address = listen_address("127.0.0.1:9080")
        own = replica(url=f"http://{host}:9080")
        for work in (stage.asked.add("m", own), stage.asked.register("m", own, 5.0, "x")):
            problem = await refusal(work)
            assert isinstance(problem, InvalidError)
            assert "admin API" in str(problem)
        stage.fleet.members.discovered("m", (own, replica(url="http://127.0.0.1:9")))  # by discovery
        assert [r.url for r in stage.fleet.members.registry.from_source(DISCOVERED, "m")] == ["http://127.0.0.1:9"]

    operate(scene)


def test_a_drained_replica_stays_so_until_it_is_taken_back() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.drain("m", "a")
        view = stage.views()["a"]
        assert (view.state, view.draining, view.reason) == ("draining", True, "an operator drains it")
        await stage.asked.drain("m", "a")
        stage.source.text = stage.source.text.replace(":9'", ":11'")
        await stage.asked.reload()
        assert (stage.views()["a"].url, stage.views()["a"].state) == ("http://127.0.0.1:11", "draining")
        await stage.asked.undrain("m", "a")
        assert stage.views()["a"].state == "ready"
        await stage.asked.undrain("m", "a")
        assert stage.views()["a"].state == "ready"

    operate(scene, workers=2)


def test_a_drain_is_told_to_a_worker_that_takes_another_s_place() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.drain("m", "a")
        with pytest.raises(ConnectionError):
            await ask(stage.supervisor, "/die")
        await until(lambda: stage.supervisor.status().unexpected_exits == 1 and serving(stage.supervisor))
        assert stage.views()["a"].state == "draining"
        (message,) = stage.fleet.initial_state()
        assert [(c.id, c.event) for c in message.events] == [("a", "drain")]  # type: ignore[union-attr]

    operate(scene)


def test_a_weight_holds_over_reloads_until_it_is_taken_back() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.set_weight("m", "a", 5.0)
        assert stage.views()["a"].weight == 5.0
        await stage.asked.reload()
        assert stage.views()["a"].weight == 5.0
        await until(lambda: stage.supervisor.config.models["m"].replicas[0].weight == 5.0)
        assert "m/a changed: weight 1 → 5" in stage.happened()
        await stage.asked.set_weight("m", "a", None)
        assert stage.views()["a"].weight == 1.0
        await until(lambda: stage.supervisor.config.models["m"].replicas[0].weight == 1.0)

    operate(scene)


# ---------------------------------------------------------------------- replicas that we started


async def started(stage: Operated, id: str = "p1") -> None:
    """As the controller tells of one, with a log of three lines."""
    stage.fleet.members.registry.set_source(STARTED, "m", (replica(id),))
    stage.fleet.members.refresh("m", at_once=True)
    controller = cast(Any, stage.supervisor.controllers.replicas)
    controller.log_tail = lambda key, lines: ("one", "two", "three")[-lines:] if key == ("m", id) else None
    await stage.shown(id)


def test_what_we_started_is_not_removed_by_hand() -> None:
    async def scene(stage: Operated) -> None:
        await started(stage)
        problem = await refusal(stage.asked.remove("m", "p1"))
        assert isinstance(problem, ConflictError)
        what = "Steelyard started it: change autoscale or runtime.replicas; to keep requests away now, drain it"
        assert str(problem) == what
        assert (stage.views()["p1"].source, stage.views()["p1"].state) == ("runtime", "ready")
        for work in (stage.asked.add("m", replica("p1")), stage.asked.register("m", replica("p1"), 5.0, "x")):
            assert isinstance(await refusal(work), ConflictError)

    operate(scene)


def test_what_we_started_is_drained_taken_back_and_weighed_like_all() -> None:
    async def scene(stage: Operated) -> None:
        await started(stage)
        await stage.asked.drain("m", "p1")
        assert stage.views()["p1"].state == "draining"
        await stage.asked.undrain("m", "p1")
        assert stage.views()["p1"].state == "ready"
        await stage.asked.set_weight("m", "p1", 3.0)
        assert stage.views()["p1"].weight == 3.0

    operate(scene)


def test_the_log_of_what_we_started_can_be_read() -> None:
    async def scene(stage: Operated) -> None:
        await started(stage)
        assert stage.asked.log_tail("m", "p1", 2) == ("two", "three")
        for model, id, reason in (
            ("m", "a", "Steelyard did not start 'a': its log is with what started it"),
            ("m", "p9", "m has no replica 'p9'"),
            ("z", "p1", "there is no model 'z'"),
        ):
            with pytest.raises(NotFoundError) as found:
                stage.asked.log_tail(model, id, 2)
            assert str(found.value) == reason

    operate(scene)


def test_how_a_model_is_scaled_is_told_with_all_its_history() -> None:
    async def scene(stage: Operated) -> None:
        steps = tuple(shown(ScalingStepView, after=n) for n in range(100))
        scaling = cast(Any, stage.supervisor.controllers.autoscaler)
        scaling.views = lambda: (shown(ScalingView, model="m", steps=steps),)
        assert stage.asked.scaling("m").steps == steps
        assert stage.asked.fleet().scaling[0].steps == steps[-5:]
        scaling.views = tuple
        for model, reason in (
            ("m", "m has neither `autoscale` nor `runtime`: others decide how many replicas it has"),
            ("z", "there is no model 'z'"),
        ):
            with pytest.raises(NotFoundError) as found:
                stage.asked.scaling(model)
            assert str(found.value) == reason

    operate(scene)


def test_a_model_that_rests_at_zero_does_not_keep_traffic_away() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.drain("m", "a")
        scaling = cast(Any, stage.supervisor.controllers.autoscaler)
        at_rest = shown(ScalingView, model="m", mode="act", min_replicas=0, desired=0, starting=0)
        scaling.views = lambda: (at_rest,)
        assert stage.asked.readiness_problems() == []
        scaling.views = lambda: (msgspec.structs.replace(at_rest, desired=1),)
        assert stage.asked.readiness_problems() == ["no replica of m is ready"]

    operate(scene)


# ---------------------------------------------------------------------- models


def settings(stage: Operated) -> tuple[str, dict[str, Any], int | str]:
    model = stage.supervisor.config.models["m"]
    return model.policy, model.policy_options, model.concurrency


def test_a_model_is_changed_and_changed_back() -> None:
    async def scene(stage: Operated) -> None:
        asked = stage.asked
        await asked.set_model("m", {"policy": "peak_ewma", "policy_options": {"tau": 3}, "concurrency": 4})
        assert settings(stage) == ("peak_ewma", {"tau": 3}, 4)
        (view,) = asked.fleet().models
        assert set(view.overridden) == {"policy", "policy_options", "concurrency"}
        await asked.set_model("m", {"concurrency": None})
        assert settings(stage) == ("peak_ewma", {"tau": 3}, "unlimited")
        await asked.reload()
        assert settings(stage) == ("peak_ewma", {"tau": 3}, "unlimited")
        await asked.set_model("m", {"policy": None})
        assert settings(stage) == ("least_work", {}, "unlimited")
        assert asked.fleet().models[0].overridden == ()
        assert stage.fleet.members.registry.model_overrides == {}
        assert stage.asked.events()[-1].message == "set to what the configuration says"

    operate(scene)


def test_another_policy_does_not_get_the_options_of_the_one_before() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.set_model("m", {"policy": "peak_ewma"})
        assert settings(stage)[:2] == ("peak_ewma", {})
        await stage.asked.set_model("m", {"policy_options": {"tau": 3}})
        assert settings(stage)[:2] == ("peak_ewma", {"tau": 3})
        await stage.asked.set_model("m", {"policy": "round_robin"})
        assert settings(stage)[:2] == ("round_robin", {})
        await stage.asked.set_model("m", {"policy": None, "policy_options": None})
        assert settings(stage)[:2] == ("least_response_time", {"tau": 9})

    operate(scene, UNPROBED.replace("m: {", "m: {policy: least_response_time, policy_options: {tau: 9}, "))


def test_options_alone_are_for_the_policy_that_is_there() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.set_model("m", {"policy_options": {"tau": 3}})
        assert settings(stage)[:2] == ("least_response_time", {"tau": 3})
        problem = await refusal(stage.asked.set_model("m", {"policy_options": {"nonsense": 3}}))
        assert isinstance(problem, InvalidError)
        assert problem.key == "policy_options.nonsense"
        await stage.asked.set_model("m", {"policy_options": None})
        assert settings(stage)[:2] == ("least_response_time", {"tau": 9})

    operate(scene, UNPROBED.replace("m: {", "m: {policy: least_response_time, policy_options: {tau: 9}, "))


def test_options_that_were_set_do_not_spoil_a_reload_with_another_policy() -> None:
    text = UNPROBED.replace("m: {", "m: {policy: least_response_time, ")

    async def scene(stage: Operated) -> None:
        await stage.asked.set_model("m", {"policy_options": {"tau": 3}})
        stage.source.text = stage.source.text.replace("least_response_time", "round_robin")
        await stage.asked.reload()
        policy, options, _ = settings(stage)
        assert (policy, options) in [("round_robin", {}), ("least_response_time", {"tau": 3})]

    operate(scene, text)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"policy": "nonsense"}, "policy"),
        ({"policy": "peak_ewma", "policy_options": {"nonsense": 1}}, "policy_options.nonsense"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 3, "policy": "nonsense"}, "policy"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(changes: dict[str, Any], key: str) -> None:
    async def scene(stage: Operated) -> None:
        before = settings(stage)
        problem = await refusal(stage.asked.set_model("m", changes))
        assert isinstance(problem, InvalidError)
        assert problem.key == key
        assert (settings(stage), stage.fleet.members.registry.model_overrides) == (before, {})

    operate(scene)


def test_what_workers_refuse_is_taken_back() -> None:
    async def scene(stage: Operated) -> None:
        before = settings(stage)
        good = stage.source.text
        # Nothing that a worker would refuse gets past the supervisor's own check, so the configuration refuses for it.
        stage.fleet.members.registry.set_config(made(good.replace("models:\n", "models:\n  refused: {}\n")))
        problem = await refusal(stage.asked.set_model("m", {"concurrency": 3}))
        assert "no such certificate" in str(problem)
        assert settings(stage) == before
        assert not stage.fleet.members.registry.model_overrides.get("m")
        assert stage.asked.fleet().models[0].overridden == ()

    operate(scene)


def test_what_does_not_fit_is_taken_back() -> None:
    """More replicas were found than the ledger has columns for: they wait, and so does every change of the whole."""

    async def scene(stage: Operated) -> None:
        stage.fleet.members.discovered(
            "m", tuple(replica(f"r{n}", f"http://10.0.0.1:{n + 1}") for n in range(MIN_LEDGER_COLUMNS))
        )
        assert stage.fleet.members.capacity_problem
        assert [alarm.code for alarm in stage.asked.fleet().alarms] == ["shared_memory_full"]
        await refusal(stage.asked.set_model("m", {"concurrency": 3}))
        assert not stage.fleet.members.registry.model_overrides.get("m")
        assert isinstance(await refusal(stage.asked.reload()), InvalidError)
        assert set(stage.fleet.health.statuses) == {("m", "a")}
        assert stage.views()["a"].state == "ready"
        stage.fleet.members.discovered("m", ())
        await stage.asked.set_model("m", {"concurrency": 3})
        assert settings(stage)[2] == 3

    operate(scene)


def test_changes_at_the_same_time_come_one_after_the_other() -> None:
    async def scene(stage: Operated) -> None:
        asked = stage.asked
        policies = ["round_robin", "random", "peak_ewma", "least_connections"]
        work: list[Awaitable[None]] = []
        for number, policy in enumerate(policies):
            work += [asked.set_model("m", {"policy": policy, "concurrency": number + 1}), asked.reload()]
            work += [asked.add("m", replica(f"b{number}")), asked.drain("m", "a"), asked.undrain("m", "a")]
        await asyncio.gather(*work)
        assert settings(stage) == ("least_connections", {}, 4)
        await until(lambda: set(stage.views()) == {"a", "b0", "b1", "b2", "b3"})
        assert {view.state for view in stage.views().values()} == {"ready"}
        assert [r.name for r in stage.supervisor.config.models["m"].replicas] == ["a", "b0", "b1", "b2", "b3"]

    operate(scene, workers=2)


def test_a_reload_that_is_refused_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def scene(stage: Operated) -> None:
        stage.source.text = stage.source.text.replace("models:\n", "models:\n  refused: {}\n")
        problem = await refusal(stage.asked.reload())
        assert isinstance(problem, InvalidError)
        assert "no such certificate" in str(problem)
        assert set(stage.supervisor.config.models) == {"m"}
        assert stage.views()["a"].state == "ready"

    operate(scene)


# ---------------------------------------------------------------------- leases


@contextmanager
def remembered() -> Iterator[None]:
    """Who leaves is not forgotten here, however slow the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("steelyard.control.fleet.registrations.MAX_REPORT_AGE_SECONDS", inf)
        yield


def test_who_announces_itself_is_a_replica_for_as_long_as_is_allowed() -> None:
    async def scene(stage: Operated) -> None:
        assert await stage.asked.register("m", replica(), 25.0, "x") == 25.0
        view = await stage.shown("b")
        assert (view.source, view.state) == ("registration", "ready")
        assert view.lease is not None
        assert 0.0 < view.lease <= 25.0
        longest = stage.supervisor.config.admin.max_lease
        assert await stage.asked.register("m", replica(), 1e6, "x") == longest

    operate(scene)


def test_who_withdraws_is_drained_and_then_forgotten() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.register("m", replica(), 30.0, "x")
        await stage.shown("b")
        with remembered():
            await stage.asked.deregister("m", "b", "x")
            view = stage.views()["b"]
        assert (view.state, view.reason, view.lease) == ("draining", "it deregistered", 0.0)
        await until(lambda: set(stage.views()) == {"a"})

    operate(scene)


def test_only_the_one_that_registered_last_may_withdraw() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.register("m", replica(), 30.0, "x")
        await stage.asked.register("m", replica(), 30.0, "y")
        assert isinstance(await refusal(stage.asked.deregister("m", "b", "x")), ConflictError)
        assert isinstance(await refusal(stage.asked.deregister("m", "a", "")), ConflictError)
        assert (await stage.shown("b")).state == "ready"

    operate(scene)


def test_a_registered_replica_can_be_removed_and_may_come_again() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.register("m", replica(), 30.0, "x")
        await stage.asked.set_weight("m", "b", 3.0)
        await stage.asked.drain("m", "b")
        await stage.asked.remove("m", "b")
        assert set(stage.views()) == {"a"}
        await stage.asked.register("m", replica(), 30.0, "x")
        view = await stage.shown("b")
        assert (view.state, view.weight) == ("ready", 1.0)

    operate(scene)


def test_one_whose_lease_ran_out_is_not_taken_back_by_hand() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.register("m", replica(), 30.0, "x")
        await stage.shown("b")
        with remembered():
            await stage.asked.deregister("m", "b", "x")
            assert isinstance(await refusal(stage.asked.undrain("m", "b")), ConflictError)
        await stage.asked.register("m", replica(), 30.0, "x")
        assert (await stage.shown("b")).state == "ready"

    operate(scene)


def test_leases_of_a_model_that_is_gone_are_refused() -> None:
    async def scene(stage: Operated) -> None:
        await stage.asked.register("m", replica(), 30.0, "x")
        stage.source.text = stage.source.text.replace("  m:", "  n:")
        await stage.asked.reload()
        assert isinstance(await refusal(stage.asked.register("m", replica(), 30.0, "x")), NotFoundError)
        assert set(stage.views("n")) == {"a"}
        stage.source.text = stage.source.text.replace("  n:", "  m:")
        await stage.asked.reload()
        await stage.asked.register("m", replica(), 30.0, "x")
        assert (await stage.shown("b")).state == "ready"

    operate(scene)
