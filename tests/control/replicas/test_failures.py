"""Replicas that cannot be started, end by themselves, or are never ready."""

from __future__ import annotations

import logging

import pytest

from steelyard.control.replicas import shutdown
from steelyard.core.replica import Event, State
from steelyard.runtimes import ReplicaStartError

from ..driving import run, until
from .stage import Stage, config, staged

MISSING = ReplicaStartError("command_not_found", "there is no command named serve")


def failure(stage: Stage) -> tuple[str, int, float, bool] | None:
    found = stage.controller.summary("m").start_failure
    return None if found is None else (found.reason, found.consecutive_failures, found.retry_in, found.crash_looping)


def test_one_that_ends_is_lost_at_once_and_replaced() -> None:
    async def work() -> None:
        async with staged(words=("loading", "out of memory")) as stage:
            await stage.want(1)
            await stage.ready("p1")
            await stage.later(30.0)
            await stage.crash("p1", how="signal SIGKILL")
            lost = (("m", "p1"), Event.LOST, "its process ended: signal SIGKILL")
            assert lost in stage.moves
            assert stage.ids() == ["p2"]  # it had proved itself: no pause
            assert (
                "its process ended: signal SIGKILL; the last lines of its log: loading | out of memory" in stage.words()
            )
            assert stage.controller.summary("m").crashes == 1
            assert failure(stage) == ("ended", 1, 0.0, False)
            await stage.ready("p2")
            await stage.later(30.0)
            assert failure(stage) is None

    run(work())


def test_one_that_dies_young_is_backed_off_and_again_and_again_is_a_loop() -> None:
    async def work() -> None:
        async with staged(words=tuple(f"line {n}" for n in range(30))) as stage:
            await stage.want(1)
            pauses = []
            for number in range(1, 9):
                await stage.crash(f"p{number}")
                _, times, again_in, looping = failure(stage) or ("", 0, 0.0, False)
                assert (times, looping) == (number, number >= 3)
                assert len(stage.runtime.orders) == number
                pauses.append(again_in)
                await stage.later(again_in - 0.01)
                assert len(stage.runtime.orders) == number  # not yet
                await stage.later(0.01)
                assert len(stage.runtime.orders) == number + 1
            assert pauses == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0])
            found = stage.controller.summary("m").start_failure
            assert found is not None
            assert found.log_tail == tuple(f"line {n}" for n in range(10, 30))
            (alarm,) = stage.alarms()
            assert alarm.code == "crash_loop"
            assert alarm.message == "replicas of m fail (8 times in a row): its process ended: exit code 1: line 29"

    run(work())


def test_soon_after_it_was_ready_is_young_too() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            await stage.ready("p1")
            await stage.later(29.0)
            await stage.crash("p1")
            assert failure(stage) == ("ended", 1, 1.0, False)

    run(work())


def test_what_was_started_together_fails_together() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(10)
            for number in range(1, 11):
                await stage.crash(f"p{number}")
            assert failure(stage) == ("ended", 1, 1.0, False)
            await stage.later(1.0)
            assert len(stage.runtime.orders) == 11  # one is tried
            await stage.later(5.0)
            assert len(stage.runtime.orders) == 11
            await stage.ready("p11")
            assert len(stage.runtime.orders) == 13  # it is ready: two
            await stage.ready("p12", "p13")
            assert len(stage.runtime.orders) == 17  # four
            await stage.later(30.0)
            assert len(stage.runtime.running) == 10

    run(work())


def test_a_command_that_is_missing() -> None:
    async def work() -> None:
        async with staged(config(autoscale="cold_start: 5s, max: 9"), refuse=MISSING) as stage:
            await stage.want(3)
            assert failure(stage) == ("command_not_found", 1, 1.0, False)
            assert len(stage.runtime.orders) == 3
            assert "it could not be started: there is no command named serve" in stage.words()
            assert not stage.ids()
            stage.controller.tick(stage.now)
            assert stage.coming()[-1] == 6.0  # the next try, and then a cold start
            assert stage.controller.ready_in("m") == 6.0
            for _ in range(100):
                await stage.later(0.05)
            assert len(stage.runtime.orders) == 5  # after 1 and 3 seconds
            stage.runtime.refuse = None
            await stage.later(4.0)
            assert stage.ids() == ["p6"]
            assert stage.controller.summary("m").crashes == 5  # a start that failed is one too

    run(work())


def test_a_runtime_that_fails_in_its_own_way_is_a_failed_start(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with staged(refuse=OSError("too many files")) as stage:
            await stage.want(1)
            assert failure(stage) == ("failed", 1, 1.0, False)
            assert "OSError: too many files" in stage.words()
            assert stage.runtime.stops == [("m", "p1")]  # whatever is left of it

    run(work())


def test_one_that_is_never_ready_is_stopped_and_another_tried() -> None:
    async def work() -> None:
        async with staged(config("start_timeout: 20s"), words=("waiting for weights",)) as stage:
            await stage.want(1)
            await stage.later(19.0)
            assert stage.ids() == ["p1"]
            await stage.later(1.0)
            assert stage.runtime.stops == [("m", "p1")]
            assert failure(stage) == ("start_timeout", 1, 1.0, False)
            assert stage.controller.summary("m").crashes == 1  # once, though its process ends as well
            assert [alarm.code for alarm in stage.alarms()] == ["start_timeout"]
            assert "waiting for weights" in stage.alarms()[0].message
            await stage.later(1.0)
            assert stage.ids() == ["p2"]

    run(work())


def test_one_that_hangs_is_replaced_after_a_while() -> None:
    async def work() -> None:
        async with staged(config("start_timeout: 20s")) as stage:
            await stage.want(2)
            await stage.ready("p1", "p2")
            await stage.later(100.0)
            stage.move(("m", "p1"), Event.LOST, "no answer")
            assert stage.phases() == {"p1": "starting", "p2": "ready"}
            await stage.later(19.0)
            assert len(stage.runtime.orders) == 2
            await stage.later(1.0)
            assert stage.runtime.stops == [("m", "p1")]
            assert failure(stage) == ("start_timeout", 1, 1.0, False)
            await stage.later(1.0)
            assert stage.phases() == {"p2": "ready", "p3": "starting"}

    run(work())


def test_an_ejected_one_is_still_there() -> None:
    async def work() -> None:
        async with staged(config("start_timeout: 20s")) as stage:
            await stage.want(1)
            await stage.ready("p1")
            stage.move(("m", "p1"), Event.EJECT, "it fails")
            await stage.later(100.0)
            assert stage.state("p1") is State.EJECTED
            assert stage.phases() == {"p1": "ready"}

    run(work())


def test_the_others_are_not_touched_by_one_that_cannot_start() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(2)
            await stage.ready("p1", "p2")
            await stage.later(30.0)
            stage.runtime.refuse = MISSING
            await stage.want(4)
            for _ in range(400):
                await stage.later(1.0)
            assert stage.phases() == {"p1": "ready", "p2": "ready"}
            assert len(stage.runtime.orders) < 20
            await stage.want(1)
            assert len(stage.ids()) == 1
            assert not stage.alarms()  # nothing is missing any more

    run(work())


def test_other_settings_are_tried_at_once() -> None:
    async def work() -> None:
        async with staged(refuse=MISSING) as stage:
            await stage.want(1)
            await stage.later(1.0)
            await stage.later(2.0)
            assert failure(stage) == ("command_not_found", 3, 4.0, True)
            stage.runtime.refuse = None
            stage.reconfigure(config("working_directory: /tmp"))
            await stage.turn()
            assert failure(stage) is None
            assert len(stage.ids()) == 1

    run(work())


def test_it_ends_before_its_start_is_answered() -> None:
    async def work() -> None:
        async with staged(slow_starts=True) as stage:
            await stage.want(1)
            order = stage.runtime.orders[0]
            stage.runtime.answer.set()
            running = stage.runtime.running

            class Sudden(dict):  # type: ignore[type-arg]
                def __setitem__(self, key: object, value: object) -> None:
                    super().__setitem__(key, value)
                    stage.runtime.end(("m", order.id), "exit code 3")
                    super().__setitem__(key, value)

            stage.runtime.running = Sudden(running)
            await stage.turn()
            assert failure(stage) == ("ended", 1, 1.0, False)
            assert not stage.ids()

    run(work())


def test_one_that_ends_while_it_drains_is_gone_and_nothing_else() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            await stage.ready("p1")
            stage.busy.add(("m", "p1"))
            await stage.want(0)
            await stage.crash("p1")
            assert not stage.ids()
            assert not stage.runtime.stops
            assert failure(stage) is None
            stage.busy.clear()

    run(work())


def test_a_stop_that_fails_is_tried_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(shutdown, "STOP_RETRY_SECONDS", 0.01)
        async with staged(fail_stops=2) as stage:
            await stage.want(1)
            await stage.want(0)
            await until(lambda: not stage.runtime.running)
            await stage.turn()
            assert len(stage.runtime.stops) == 3
            assert not stage.ids()
            assert "could not be stopped" in stage.words(logging.ERROR)

    run(work())


def test_one_model_does_not_disturb_another(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with staged(config(models=("a", "b"))) as stage:
            stage.fleet.loads = _Broken({"b": {}})  # type: ignore[assignment]
            await stage.want(1, "a")
            await stage.want(1, "b")
            await stage.later(1.0)
            assert stage.ids("b") == ["p1"]
            assert not stage.ids("a")
            stage.fleet.loads = {}
            await stage.later(10.0)
            assert stage.ids("a") == ["p1"]

    run(work())
    assert sum("reconciling the replicas of a failed" in record.getMessage() for record in caplog.records) == 1


class _Broken(dict):  # type: ignore[type-arg]
    def get(self, key: object, default: object = None) -> object:
        return self[key]
