"""Where replicas are started."""

from __future__ import annotations

import logging

import pytest

from steelyard.control.replicas.start_requests import NoDeviceMemoryError, choose_device
from steelyard.core.replica import Event

from ..driving import run
from .stage import GIB, config, staged

TWO = "devices: {gpu0: {memory: 80GiB, gpu: '0'}, gpu1: {memory: 80GiB, gpu: GPU-b}}"


def test_where_most_room_is_left() -> None:
    assert choose_device(5, (), {}, {}) == ""
    assert choose_device(5, ("a", "b"), {"a": 9, "b": 10}, {"b": 3}) == "b"
    assert choose_device(5, ("a", "b"), {"a": 10, "b": 10}, {"a": 3, "b": 1}) == "b"
    assert choose_device(5, ("a", "b"), {"a": 10, "b": 10}, {}) == "a"


def test_a_device_of_unknown_size_has_room() -> None:
    assert choose_device(5, ("a", "b"), {"a": 9}, {}) == "b"


def test_a_model_of_unknown_size_fits() -> None:
    assert choose_device(0, ("a", "b"), {"a": -3, "b": -2}, {}) == "b"


def test_models_of_unknown_size_are_spread() -> None:
    assert choose_device(0, ("a", "b"), {"a": 10, "b": 9}, {"a": 1}) == "b"
    assert choose_device(0, ("a", "b"), {"a": 10, "b": 9}, {"a": 1, "b": 1}) == "a"
    assert choose_device(0, ("a", "b"), {"b": 9}, {"a": 2, "b": 1}) == "b"

    async def work() -> None:
        async with staged(config("devices: [gpu0, gpu1]", more=TWO)) as stage:
            stage.room.free = {"gpu0": 80 * GIB, "gpu1": 70 * GIB}
            await stage.want(5)
            assert [order.device for order in stage.runtime.orders] == ["gpu0", "gpu1", "gpu0", "gpu1", "gpu0"]

    run(work())


def test_no_room_is_said_with_numbers() -> None:
    rooms = {"gpu0": 12 * GIB, "gpu1": 9 * GIB, "other": 90 * GIB}
    with pytest.raises(NoDeviceMemoryError, match=r"^it needs 30 GiB; gpu0 has 12 GiB free, gpu1 has 9 GiB free$"):
        choose_device(30 * GIB, ("gpu0", "gpu1"), rooms, {})


def test_two_that_start_together_know_of_each_other() -> None:
    async def work() -> None:
        async with staged(config("devices: [gpu0, gpu1]", more=TWO)) as stage:
            stage.room.sizes["m"] = 30 * GIB
            stage.room.free = {"gpu0": 80 * GIB, "gpu1": 70 * GIB}
            await stage.want(5)
            assert [order.device for order in stage.runtime.orders] == ["gpu0", "gpu1", "gpu0", "gpu1"]
            assert [order.gpu for order in stage.runtime.orders] == ["0", "GPU-b", "0", "GPU-b"]
            assert stage.managed["m"][1].device == "gpu1"
            failure = stage.controller.summary("m").start_failure
            assert failure is not None
            assert (failure.reason, failure.retry_in) == ("insufficient_memory", 0.0)
            assert failure.message == "it needs 30 GiB; gpu0 has 20 GiB free, gpu1 has 10 GiB free"
            assert [alarm.code for alarm in stage.alarms()] == ["insufficient_memory"]
            await stage.later(0.25)
            await stage.later(0.25)
            assert len(stage.runtime.orders) == 4
            assert stage.words(logging.WARNING).count("no replica can be started") == 1

    run(work())


def test_when_there_is_room_again_it_is_started() -> None:
    async def work() -> None:
        async with staged(config("devices: [gpu0]", more=TWO)) as stage:
            stage.room.sizes["m"] = 30 * GIB
            stage.room.free = {"gpu0": 10 * GIB}
            await stage.want(1)
            assert not stage.runtime.orders
            stage.room.free = {"gpu0": 40 * GIB}
            await stage.later(0.25)
            assert stage.ids() == ["p1"]
            assert stage.controller.summary("m").start_failure is None
            assert not stage.alarms()

    run(work())


def test_what_the_ledger_counts_is_not_counted_twice() -> None:
    async def work() -> None:
        async with staged(config("devices: [gpu0]", more=TWO)) as stage:
            stage.room.sizes["m"] = 30 * GIB
            stage.room.free = {"gpu0": 70 * GIB}
            await stage.want(1)
            stage.move(("m", "p1"), Event.LIVE, "it answers")
            stage.room.free = {"gpu0": 40 * GIB}  # from now on
            await stage.want(2)
            assert len(stage.ids()) == 2
            await stage.want(3)
            assert len(stage.ids()) == 2

    run(work())


def test_what_was_learned_is_not_forgotten_with_the_last_replica() -> None:
    async def work() -> None:
        async with staged(config("devices: [gpu0]", more=TWO)) as stage:
            await stage.want(1)
            stage.room.sizes["m"] = 30 * GIB
            await stage.later(1.0)
            await stage.want(0)
            stage.room.sizes.clear()
            stage.room.free = {"gpu0": 20 * GIB}
            await stage.want(1)
            assert len(stage.runtime.orders) == 1

    run(work())


def test_what_is_declared_counts_while_the_accounts_know_nothing() -> None:
    async def work() -> None:
        made = config("devices: [gpu0]}, memory: {weights: 90GiB", more=TWO)
        async with staged(made) as stage:
            stage.room.free = {"gpu0": 80 * GIB}
            await stage.want(1)
            assert not stage.runtime.orders

    run(work())


@pytest.mark.parametrize(
    ("before", "after", "more", "where"),
    [
        ("devices: [gpu0, gpu1]", "devices: [gpu0]", TWO, ["gpu0", "gpu0"]),  # it may no longer be there
        ("", "devices: [gpu0, gpu1]", TWO, ["gpu0", "gpu1"]),  # it is nobody knows where
        ("devices: [gpu0, gpu1]", "", "", ["", ""]),  # there are no such devices any more
        ("devices: [gpu0, gpu1]", "", TWO, ["gpu0", "gpu1"]),
        ("devices: [gpu0, gpu1]", "devices: [gpu1, gpu0]", TWO, ["gpu0", "gpu1"]),
    ],
)
def test_one_that_may_not_be_where_it_is_is_replaced(before: str, after: str, more: str, where: list[str]) -> None:
    async def work() -> None:
        async with staged(config(before, more=TWO)) as stage:
            await stage.want(2)
            await stage.ready("p1", "p2")
            stage.reconfigure(config(after, more=more))
            for _ in range(3):
                await stage.turn()
                assert len(stage.runtime.running) <= 3
                await stage.ready(*stage.ids())
            await stage.later(60.0)
            assert sorted(instance.device for instance in stage.runtime.running.values()) == where
            assert not any(view.outdated for view in stage.controller.summary("m").instances)

    run(work())
