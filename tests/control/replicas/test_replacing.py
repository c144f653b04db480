"""New settings, models that leave, and what an earlier supervisor left."""

from __future__ import annotations

import logging

import pytest

from steelyard.config import Config
from steelyard.control.replicas import shutdown
from steelyard.control.replicas.controller import ReplicaCounts
from steelyard.core.replica import Event
from steelyard.runtimes import Instance, InstancePhase, ReplicaStartError

from ..driving import run, until
from .stage import GIB, Stage, config, staged

OTHER = "environment: {A: b}"


def left(id: str, made: Config | None = None, model: str = "m") -> Instance:
    runtime = (made or config()).models["m"].runtime
    assert runtime is not None
    return Instance(
        model, id, f"http://127.0.0.1:3000{id[1:]}", "", runtime.fingerprint(), InstancePhase.RUNNING, 500.0
    )


async def three(stage: Stage) -> None:
    await stage.want(3)
    await stage.ready("p1", "p2", "p3")
    await stage.later(30.0)


def test_replaced_one_by_one() -> None:
    async def work() -> None:
        async with staged() as stage:
            await three(stage)
            stage.reconfigure(config(OTHER))
            await stage.turn()
            for number in (4, 5, 6):
                assert stage.controller.count("m") == ReplicaCounts(ready=3, starting=1)
                assert len(stage.runtime.running) == 4
                await stage.ready(f"p{number}")
            assert stage.ids() == ["p4", "p5", "p6"]
            await stage.later(100.0)
            assert len(stage.runtime.orders) == 6

    run(work())


def test_the_old_stay_when_the_new_fail() -> None:
    async def work() -> None:
        async with staged() as stage:
            await three(stage)
            stage.runtime.refuse = ReplicaStartError("working_directory_missing", "there is no folder /nowhere")
            stage.reconfigure(config(OTHER))
            await stage.turn()
            for _ in range(100):
                await stage.later(1.0)
            assert stage.ids() == ["p1", "p2", "p3"]
            failure = stage.controller.summary("m").start_failure
            assert failure is not None
            assert "3 with the settings before serve on" in failure.message
            assert all(view.outdated for view in stage.controller.summary("m").instances)
            stage.reconfigure(config())  # taken back
            await stage.later(100.0)
            assert stage.ids() == ["p1", "p2", "p3"]
            assert stage.controller.summary("m").start_failure is None
            assert not stage.runtime.stops

    run(work())


def test_new_ones_that_die_soon_after_do_not_use_up_the_old() -> None:
    async def work() -> None:
        async with staged() as stage:
            await three(stage)
            stage.reconfigure(config(OTHER))
            await stage.turn()
            await stage.crash("p4")
            former = {("m", "p1"), ("m", "p2"), ("m", "p3")}
            for _ in range(20):
                for _ in range(3):  # with each that is ready another may be tried
                    await stage.ready(*(id for id, phase in stage.phases().items() if phase == "starting"))
                    await stage.later(1.0)
                await stage.later(5.0)
                for _, id in sorted(stage.runtime.running.keys() - former):
                    await stage.crash(id)
                await stage.later(60.0)
            assert former <= stage.runtime.running.keys()

    run(work())


def test_one_that_was_never_ready_is_not_waited_for() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            stage.reconfigure(config(OTHER))
            await stage.turn()
            assert stage.ids() == ["p2"]

    run(work())


def test_fewer_in_the_middle_of_it() -> None:
    async def work() -> None:
        async with staged() as stage:
            await three(stage)
            stage.reconfigure(config(OTHER))
            await stage.turn()
            await stage.want(1)
            assert stage.controller.count("m") == ReplicaCounts(ready=1, starting=1)
            await stage.ready("p4")
            assert stage.ids() == ["p4"]
            await stage.want(0)
            assert not stage.ids()

    run(work())


def test_an_old_one_that_serves_is_not_given_up_for_new_ones_that_do_not() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            await stage.ready("p1")
            stage.reconfigure(config(OTHER))
            await stage.want(3)
            assert stage.controller.count("m") == ReplicaCounts(ready=1, starting=2)
            await stage.want(1)
            assert stage.controller.count("m") == ReplicaCounts(ready=1, starting=1)
            assert ("m", "p1") in stage.runtime.running

    run(work())


def test_nobody_is_left_over_when_settings_come_and_go() -> None:
    async def work() -> None:
        stage = Stage()
        stage.runtime.left = [left("p1", config(OTHER))]
        await stage.controller.begin(config())
        await stage.ready("p1")
        stage.reconfigure(config(OTHER))
        stage.busy.add(("m", "p1"))
        await stage.want(0)
        await stage.want(4)
        stage.reconfigure(config())
        await stage.turn()
        await stage.want(2)
        assert stage.controller.count("m").starting == 2
        stage.busy.clear()
        await stage.controller.close()

    run(work())


def test_how_many_and_how_long_is_no_reason_to_replace() -> None:
    async def work() -> None:
        async with staged() as stage:
            await three(stage)
            stage.reconfigure(config("replicas: 7, drain_timeout: 1s"))
            await stage.later(1.0)
            assert len(stage.runtime.orders) == 3
            assert not stage.runtime.stops

    run(work())


def test_without_a_runtime_all_leave() -> None:
    async def work() -> None:
        async with staged() as stage:
            await three(stage)
            stage.move(("m", "p3"), Event.DRAIN, "an operator")
            await stage.turn()
            stage.reconfigure(config(models=(), more="  m: {replicas: [{url: 'http://127.0.0.1:9'}]}"))
            await stage.turn()
            assert not stage.ids()
            assert not stage.runtime.running
            await stage.want(5)
            assert not stage.runtime.running
            await stage.later(1.0)
            assert stage.controller.count("m") == ReplicaCounts()

    run(work())


def test_a_model_that_is_gone_has_time_for_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(shutdown, "IDLE_STOP_DELAY_SECONDS", 0.01)
        async with staged(config("drain_timeout: 10ms", models=("m", "n"))) as stage:
            await three(stage)
            stage.reconfigure(config(models=("n",)))
            assert stage.controller.count("m") == ReplicaCounts(terminating=3)
            await until(lambda: not stage.runtime.running)

    run(work())


def test_what_an_earlier_supervisor_left_is_adopted() -> None:
    async def work() -> None:
        stage = Stage()
        stage.runtime.left = [left("p3"), left("p7")]
        await stage.controller.begin(config())
        assert stage.ids() == ["p3", "p7"]
        assert [view.adopted for view in stage.controller.summary("m").instances] == [True, True]
        assert stage.controller.count("m") == ReplicaCounts(starting=2)
        await stage.later(5.0)
        assert not stage.runtime.orders  # nobody has said how many
        assert not stage.runtime.stops
        await stage.ready("p3", "p7")
        assert stage.controller.cold_start("m") == (10.0, False)
        await stage.want(3)
        assert stage.ids() == ["p3", "p7", "p8"]
        assert stage.runtime.orders[0].number == 2
        await stage.want(1)
        assert len(stage.ids()) == 1
        await stage.controller.close()

    run(work())


def test_adopted_with_other_settings_it_serves_until_it_is_replaced() -> None:
    async def work() -> None:
        stage = Stage()
        stage.runtime.left = [left("p1", config(OTHER))]
        await stage.controller.begin(config())
        await stage.want(1)
        assert stage.phases() == {"p1": "starting", "p2": "starting"}
        await stage.ready("p1")
        assert not stage.runtime.stops
        await stage.ready("p2")
        assert stage.ids() == ["p2"]
        await stage.controller.close()

    run(work())


def test_what_nobody_wants_any_more_is_ended() -> None:
    async def work() -> None:
        stage = Stage()
        stage.runtime.slow_stops = True
        stage.runtime.left = [left("p1", model="gone"), left("p1"), left("p2")]
        await stage.controller.begin(config("}, replicas: [{id: p1, url: 'http://h:1'}], memory: {"))
        stage.controller.tick(stage.now)
        assert stage.ids() == ["p2"]  # from the beginning
        stage.runtime.stopped.set()
        await stage.turn()
        assert sorted(stage.runtime.stops) == [("gone", "p1"), ("m", "p1")]
        assert stage.ids() == ["p2"]
        await stage.controller.close()

    run(work())


def test_a_runtime_that_does_not_say_what_runs_keeps_nobody_from_starting(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with staged(fail_list=OSError("no such folder")) as stage:
            assert "could not be taken over: OSError: no such folder" in stage.words(logging.ERROR)
            await stage.want(1)
            assert stage.ids() == ["p1"]

    run(work())


def test_where_there_is_no_room_for_a_new_one_beside_it_an_operator_can_drain_the_old() -> None:
    async def work() -> None:
        gpu = "devices: {gpu0: {memory: 80GiB}}"
        async with staged(config("devices: [gpu0]", more=gpu)) as stage:
            stage.room.sizes["m"] = 50 * GIB
            stage.room.free = {"gpu0": 70 * GIB}
            await stage.want(1)
            await stage.ready("p1")
            stage.room.free = {"gpu0": 20 * GIB}
            stage.reconfigure(config(f"devices: [gpu0], {OTHER}", more=gpu))
            await stage.later(60.0)
            assert stage.ids() == ["p1"]
            failure = stage.controller.summary("m").start_failure
            assert failure is not None
            assert failure.message == "it needs 50 GiB; gpu0 has 20 GiB free; 1 with the settings before serve on"
            stage.move(("m", "p1"), Event.DRAIN, "an operator")
            await stage.turn()
            assert stage.runtime.stops == [("m", "p1")]
            stage.room.free = {"gpu0": 70 * GIB}
            await stage.later(0.25)
            assert stage.ids() == ["p2"]

    run(work())


def test_one_that_was_spared_is_told_again_when_its_model_comes_back() -> None:
    async def work() -> None:
        stage = Stage()
        stage.runtime.left = [left("p1")]
        await stage.controller.begin(config(), keep_adopted=True)
        await stage.want(1)
        await stage.ready("p1")
        stage.reconfigure(config(models=("other",)))
        del stage.managed["m"]  # as the fleet does
        stage.statuses.clear()
        await stage.later(1.0)
        assert not stage.ids()
        stage.reconfigure(config())
        await stage.want(1)
        await stage.later(1.0)
        assert stage.ids() == ["p1"]
        await stage.ready("p1")
        assert stage.phases() == {"p1": "ready"}
        await stage.controller.close()

    run(work())
