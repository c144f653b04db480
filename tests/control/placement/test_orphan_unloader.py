"""Models that leave the configuration: what was loaded by us is unloaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from steelyard.control.placement import orphan_unloader

from .stage import MODEL_BYTES, READY, Shelf, Stage, acted

two = partial(Shelf, "m", "n")
with_n = partial(Shelf, "m", "n", ready=["n"])
A_M, A_N = ("m", "a"), ("n", "a")


@contextmanager
def impatient(**more: float) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in {
            "IDLE_UNLOAD_DELAY_SECONDS": 0.05,
            "BUSY_UNLOAD_DELAY_SECONDS": 0.1,
            "FIRST_RETRY_SECONDS": 0.05,
            **more,
        }.items():
            patch.setattr(orphan_unloader, name, seconds)
        yield


async def loaded(stage: Stage) -> Shelf:
    """m at a, by us."""
    stage.follow("m", "n")
    await stage.known()
    stage.load("m", "a")
    await stage.until(lambda: stage.state(*A_M) == READY)
    stage.script.loads = []
    await stage.known()
    return stage.shelves["a"]


@acted(a=with_n)
async def test_what_was_loaded_by_us_goes(stage: Stage) -> None:
    shelf = await loaded(stage)
    with impatient():
        stage.follow("n")
        await stage.until(lambda: "m/a: unloaded: it left the configuration" in stage.notes)
    assert (shelf.unloads, shelf.models) == (["m"], {"m": "UNAVAILABLE", "n": "READY"})
    assert (stage.ledger.reserved, stage.alarms()) == ({A_N: MODEL_BYTES}, [])


@acted(a=with_n)
async def test_what_runs_has_time_to_end(stage: Stage) -> None:
    shelf = await loaded(stage)
    stage.running = {A_M: 1}
    await stage.known()
    with impatient(IDLE_UNLOAD_DELAY_SECONDS=0.0, BUSY_UNLOAD_DELAY_SECONDS=60.0):
        stage.follow("n")
        asked = stage.script.asked
        await stage.until(lambda: stage.script.asked > asked + 3)
    assert shelf.unloads == []


@acted(a=with_n)
async def test_what_others_loaded_stays(stage: Stage) -> None:
    shelf = await loaded(stage)
    with impatient():
        stage.follow("o")
        await stage.until(lambda: shelf.unloads)
        await stage.until(lambda: not stage.placer.orphan_unloader.tasks)
    assert shelf.models == {"m": "UNAVAILABLE", "n": "READY"}


@acted(a=two)
async def test_a_load_that_was_under_way_is_undone(stage: Stage) -> None:
    shelf = stage.shelves["a"]
    stage.follow("m", "n")
    await stage.known()
    shelf.going_on.clear()
    stage.load("m", "a")
    await stage.until(lambda: shelf.loads)
    with impatient():
        stage.follow("n")
        await stage.until(lambda: len(shelf.asked) > 3)
        shelf.going_on.set()
        await stage.until(lambda: shelf.unloads == ["m"])
    await stage.until(lambda: shelf.models["m"] == "UNAVAILABLE")


@acted(a=two)
async def test_it_comes_back_in_time(stage: Stage) -> None:
    shelf = await loaded(stage)
    stage.follow("n")
    stage.follow("m", "n")
    await stage.until(lambda: stage.state(*A_M) == READY)
    assert (shelf.unloads, stage.placer.orphan_unloader.tasks) == ([], {})


@acted(a=two)
async def test_it_cannot_be_unloaded(stage: Stage) -> None:
    shelf = await loaded(stage)
    shelf.refuse = "not now"
    with impatient():
        stage.follow("n")
        await stage.until(stage.alarms)
        alarm = stage.alarms()[0]
        assert (alarm.code, "not now" in alarm.message) == ("unload_failed", True)
        assert "m, which left the configuration, at 127.0.0.1" in alarm.message
        shelf.refuse = ""
        await stage.until(lambda: shelf.models["m"] == "UNAVAILABLE")
        await stage.until(lambda: not stage.alarms())


@acted(a=two)
async def test_its_server_is_gone(stage: Stage) -> None:
    shelf = await loaded(stage)
    await shelf.crash()
    with impatient():
        stage.follow("n")
        await stage.until(lambda: not stage.placer.orphan_unloader.tasks)
    assert not stage.placer.orphan_unloader.failures


@acted(a=two, b=two)
async def test_a_server_that_has_left_keeps_what_it_has(stage: Stage) -> None:
    await loaded(stage)
    stage.follow("m", "n", shelves=["b"])
    assert not stage.placer.orphan_unloader.tasks
