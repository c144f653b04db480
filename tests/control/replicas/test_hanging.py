"""Replicas that were ready, whose processes run, and that do not answer."""

from __future__ import annotations

from steelyard.control.replicas.managed_replica import HUNG_AFTER_SECONDS
from steelyard.core.replica import Event

from ..driving import run
from .stage import Stage, config, staged


async def lose(stage: Stage, *ids: str) -> None:
    for id in ids:
        stage.move(("m", id), Event.LOST, "no answer")
    await stage.turn()


async def some(stage: Stage, count: int) -> None:
    await stage.want(count)
    await stage.ready(*stage.ids())
    await stage.later(60.0)


def test_it_is_replaced_long_before_the_timeout_of_a_start() -> None:
    async def work() -> None:
        async with staged() as stage:
            await some(stage, 2)
            await lose(stage, "p1")
            await stage.later(HUNG_AFTER_SECONDS - 1.0)
            assert not stage.runtime.stops
            await stage.later(1.0)
            assert stage.runtime.stops == [("m", "p1")]
            failure = stage.controller.summary("m").start_failure
            assert failure is not None
            assert failure.reason == "start_timeout"
            assert failure.message == "it was ready, and has not answered for 60 s"
            await stage.later(1.0)
            assert stage.phases() == {"p2": "ready", "p3": "starting"}

    run(work())


def test_one_that_answers_and_is_not_ready_has_all_the_time_of_a_start() -> None:
    async def work() -> None:
        async with staged(config("start_timeout: 500s")) as stage:
            await some(stage, 1)
            await lose(stage, "p1")
            await stage.later(HUNG_AFTER_SECONDS - 1.0)
            stage.move(("m", "p1"), Event.LIVE, "it answers, and loads")
            for _ in range(43):
                await stage.later(10.0)
            assert not stage.runtime.stops
            await lose(stage, "p1")
            await stage.later(1.0)
            assert not stage.runtime.stops  # it is counted anew
            await stage.later(10.0)
            assert stage.runtime.stops  # 500 s without being ready

    run(work())


def test_one_that_was_never_ready_may_open_its_port_late() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            await lose(stage, "p1")
            await stage.later(5.0 * HUNG_AFTER_SECONDS)
            assert not stage.runtime.stops

    run(work())


def test_one_that_comes_back_stays() -> None:
    async def work() -> None:
        async with staged() as stage:
            await some(stage, 1)
            for _ in range(5):
                await lose(stage, "p1")
                await stage.later(HUNG_AFTER_SECONDS - 1.0)
                await stage.ready("p1")
                await stage.later(1.0)
            assert not stage.runtime.stops

    run(work())


def test_not_all_at_once() -> None:
    """It may be we who hear nothing."""

    async def work() -> None:
        async with staged() as stage:
            await some(stage, 3)
            await lose(stage, "p1", "p2", "p3")
            await stage.later(HUNG_AFTER_SECONDS)
            for _ in range(100):
                await stage.later(0.25)
            assert stage.runtime.stops == [("m", "p1")]
            assert stage.phases() == {"p2": "starting", "p3": "starting", "p4": "starting"}
            await stage.ready("p4")
            await stage.later(0.25)
            assert stage.runtime.stops == [("m", "p1"), ("m", "p2")]
            await stage.ready("p3")  # it was a network
            for _ in range(100):
                await stage.later(0.25)
            assert stage.phases() == {"p3": "ready", "p4": "ready", "p5": "starting"}

    run(work())


def test_one_that_an_operator_drains_is_left_alone() -> None:
    async def work() -> None:
        async with staged() as stage:
            await some(stage, 1)
            await lose(stage, "p1")
            stage.move(("m", "p1"), Event.DRAIN, "an operator")
            await stage.later(5.0 * HUNG_AFTER_SECONDS)
            assert ("m", "p1") in stage.runtime.running

    run(work())
