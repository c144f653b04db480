"""How long what runs on a replica that leaves has to end, and what a gateway that stops does for those who wait."""

from __future__ import annotations

import pytest

from steelyard.control.replicas.managed_replica import HUNG_AFTER_SECONDS
from steelyard.control.replicas.shutdown import MAX_SHORT_DRAIN_SECONDS
from steelyard.core.replica import Event

from ..driving import run
from .stage import Stage, config, staged

HOUR = 3600.0


@pytest.mark.parametrize(
    ("runtime", "more", "seconds"),
    [
        ("", "", HOUR),
        ("", "timeouts: {total: 2h}\n", 2 * HOUR),  # as long as a request may take
        ("drain_timeout: 45s", "", 45.0),
        ("drain_timeout: 0", "", 0.0),
    ],
)
def test_nothing_hurries_a_scale_down_but_the_operator(runtime: str, more: str, seconds: float) -> None:
    async def work() -> None:
        async with staged(config(runtime, more=more)) as stage:
            await stage.want(1)
            await stage.ready("p1")
            await stage.want(0)
            assert stage.drains == {"p1": seconds}

    run(work())


def test_nor_the_replacement_of_one_with_old_settings() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            await stage.ready("p1")
            stage.reconfigure(config("environment: {A: b}"))
            await stage.turn()
            await stage.ready("p2")
            assert stage.drains == {"p1": HOUR}

    run(work())


@pytest.mark.parametrize(
    ("runtime", "seconds"),
    [("", MAX_SHORT_DRAIN_SECONDS), ("drain_timeout: 2h", MAX_SHORT_DRAIN_SECONDS), ("drain_timeout: 5s", 5.0)],
)
def test_one_that_is_given_up_is_not_kept_for_long(runtime: str, seconds: float) -> None:
    async def work() -> None:
        async with staged(config(runtime)) as stage:
            await stage.want(1)
            await stage.ready("p1")
            stage.move(("m", "p1"), Event.LOST, "no answer")
            await stage.later(HUNG_AFTER_SECONDS)
            assert stage.drains == {"p1": seconds}

    run(work())


def test_what_was_ordered_when_the_gateway_stops_is_still_told_and_nothing_else_is_started() -> None:
    async def work() -> None:
        async with staged() as stage:
            stage.controller.scale("m", 1, "somebody waits")
            stage.controller.pause()
            assert not stage.ids()
            await stage.turn()
            assert stage.ids() == ["p1"]
            await stage.ready("p1")
            assert stage.phases() == {"p1": "ready"}
            await stage.crash("p1")
            await stage.later(60.0)
            assert len(stage.runtime.orders) == 1
            assert stage.ids() == []

    run(work())


def test_when_the_fleet_has_ended_nobody_is_told() -> None:
    async def work() -> None:
        async with staged() as stage:
            await ready_one(stage)
            stage.controller.stop_reporting()
            await stage.controller.stop_all()
            assert stage.runtime.stops == [("m", "p1")]
            assert stage.ids() == ["p1"]

    run(work())


async def ready_one(stage: Stage) -> None:
    await stage.want(1)
    await stage.ready("p1")
