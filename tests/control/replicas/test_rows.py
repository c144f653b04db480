"""When a series of failures ends."""

from __future__ import annotations

import pytest

from steelyard.control.replicas.failures import FORGET_AFTER_SECONDS

from ..driving import run
from .stage import Stage, config, staged


def row(stage: Stage) -> int:
    found = stage.controller.summary("m").start_failure
    return found.consecutive_failures if found is not None else 0


async def new(stage: Stage) -> str:
    """The one that is started next."""
    before = len(stage.runtime.orders)
    await stage.want(1)
    await stage.later(61.0)
    assert len(stage.runtime.orders) == before + 1
    return stage.runtime.orders[-1].id


def test_a_good_life_in_between_ends_it() -> None:
    async def work() -> None:
        async with staged() as stage:
            for _ in range(4):
                await stage.crash(await new(stage))
                assert row(stage) == 1
                await stage.ready(await new(stage))
                await stage.later(1.0)
                await stage.want(0)  # nobody needs it any more
                assert row(stage) == 0
            assert not stage.alarms()

    run(work())


@pytest.mark.parametrize("ready", [False, True])
def test_one_that_was_stopped_before_it_was_ready_or_crashed_while_it_drained_does_not(ready: bool) -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.crash(await new(stage))
            id = await new(stage)
            if ready:
                await stage.ready(id)
                stage.busy.add(("m", id))
            await stage.want(0)
            if ready:
                await stage.crash(id)
                stage.busy.clear()
            assert not stage.runtime.running
            assert row(stage) == 1

    run(work())


def test_one_that_was_there_before_does_not_end_it() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            await stage.ready("p1")
            await stage.later(60.0)
            await stage.want(2)
            await stage.crash("p2")
            await stage.want(0)
            assert not stage.runtime.running
            assert row(stage) == 1

    run(work())


def test_one_with_other_settings_does_not_end_it() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.crash(await new(stage))
            id = await new(stage)
            await stage.ready(id)
            stage.reconfigure(config("environment: {A: b}"))
            await stage.turn()
            await stage.crash(stage.runtime.orders[-1].id)
            await stage.want(0)
            assert not stage.runtime.running
            assert row(stage) == 1

    run(work())


def test_after_a_while_without_a_try_it_is_forgotten() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.crash(await new(stage))
            await stage.want(0)
            await stage.later(FORGET_AFTER_SECONDS)
            assert row(stage) == 0
            await stage.want(5)
            assert len(stage.runtime.running) == 5

    run(work())


@pytest.mark.parametrize("ready", [False, True])
def test_it_is_not_while_one_is_on_trial(ready: bool) -> None:
    """Some take long to load, and fail only then, or soon after."""

    async def work() -> None:
        async with staged(config("start_timeout: 2h")) as stage:
            for number in range(1, 4):
                id = await new(stage)
                await stage.later(2.0 * FORGET_AFTER_SECONDS)
                if ready:
                    await stage.ready(id)
                    await stage.later(1.0)
                await stage.crash(id)
                assert row(stage) == number
            assert [alarm.code for alarm in stage.alarms()] == ["crash_loop"]

    run(work())
