"""Servers that crash, freeze and come back, and configurations that change, in the middle of a load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
import pytest

from steelyard.config import Config
from steelyard.control.placement import index_poller as looks_module
from steelyard.control.placement import repository_client
from steelyard.core.replica import Event

from ..driving import run
from .stage import MODEL_BYTES, READY, UNLOADED, Shelf, Stage, acted, staged

two = partial(Shelf, "m", "n")
with_n = partial(Shelf, "m", "n", ready=["n"])
A_M, A_N, B_M, B_N = ("m", "a"), ("n", "a"), ("m", "b"), ("n", "b")


@contextmanager
def impatient() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looks_module, "REFUSED_GRACE_SECONDS", 0.1)
        patch.setattr(looks_module, "MAX_RETRY_SECONDS", 0.05)
        yield


async def loading(stage: Stage, *evict: tuple[str, str]) -> None:
    """A load of m at a that does not end."""
    await stage.known()
    stage.shelves["a"].going_on.clear()
    stage.load("m", "a", *evict)
    await stage.until(lambda: stage.shelves["a"].loads)
    stage.script.loads = []


# ---------------------------------------------------------------------- crashes


@acted(a=two)
async def test_a_crash_in_the_middle_of_a_load(stage: Stage) -> None:
    with impatient():
        stage.follow("m", "n")
        await loading(stage)
        await stage.shelves["a"].crash()
        await stage.until(stage.failures)
        assert stage.failures() == {A_M: "load_failed"}
        assert stage.state(*A_M) == UNLOADED
        await stage.until(lambda: not stage.ledger.reserved)
    assert not stage.placer.views().hosts[0].known
    await stage.until(lambda: len(stage.alarms()) == 1)
    assert "refuses connections" in stage.alarms()[0].message
    stage.shelves["a"].going_on.set()
    await stage.shelves["a"].start()
    await stage.known()
    stage.load("m", "a")
    await stage.until(lambda: stage.state(*A_M) == READY)
    assert (stage.ledger.reserved, stage.alarms()) == ({A_M: MODEL_BYTES}, [])


@acted(a=with_n, b=two)
async def test_who_has_crashed_is_not_counted_on_and_holds_nothing(stage: Stage) -> None:
    with impatient():
        stage.follow("m", "n")
        await stage.known()
        await stage.shelves["a"].crash()
        stage.move(A_N, Event.LOST)  # as probes see it
        await stage.until(lambda: not stage.ledger.reserved)
    before = stage.script.asked
    await stage.until(lambda: stage.script.asked > before)
    assert list(stage.script.servers) == [stage.server("b")]
    await stage.shelves["a"].start()
    stage.shelves["a"].models["n"] = "READY"  # it loads what it likes
    await stage.until(lambda: stage.state(*A_N) == READY)
    assert stage.ledger.reserved == {A_N: MODEL_BYTES}


@acted(a=with_n)
async def test_a_restart_loses_what_was_loaded(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()
    stage.shelves["a"].models["n"] = "UNAVAILABLE"
    stage.move(A_N, Event.LIVE)  # `restarted`, says the fleet
    await stage.until(lambda: stage.state(*A_N) == UNLOADED)
    assert stage.ledger.reserved == {}


@acted(a=with_n)
async def test_silence_is_no_death(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()
    shelf = stage.shelves["a"]
    shelf.answers["/v2/repository/index"] = 500
    stage.move(A_N, Event.LOST)
    await stage.until(lambda: not stage.placer.views().hosts[0].known)
    assert stage.ledger.reserved == {A_N: MODEL_BYTES}
    assert "that is no list of its models" in stage.placer.views().hosts[0].problem
    shelf.answers["/v2/repository/index"] = shelf.index
    stage.move(A_N, Event.LOADED)
    await stage.known()
    assert (stage.state(*A_N), stage.ledger.reserved) == (READY, {A_N: MODEL_BYTES})


@acted(a=with_n)
async def test_a_crash_in_the_middle_of_an_unload(stage: Stage) -> None:
    with impatient():
        shelf = stage.shelves["a"]
        stage.follow("m", "n")
        await stage.known()
        shelf.going_on.clear()
        stage.load("m", "a", ("a", "n"))
        await stage.until(lambda: shelf.unloads)
        await shelf.crash()
        await stage.until(stage.failures)
        assert stage.failures() == {A_M: "unload_failed"}
        await stage.until(lambda: not stage.ledger.reserved)
    shelf.going_on.set()
    await shelf.start()
    stage.load("m", "a")
    await stage.until(lambda: stage.state(*A_M) == READY)
    assert (stage.state(*A_N), stage.ledger.reserved) == (UNLOADED, {A_M: MODEL_BYTES})


@acted(a=with_n)
async def test_a_server_that_is_too_busy_to_answer_for_a_while(stage: Stage) -> None:
    shelf = stage.shelves["a"]
    stage.follow("m", "n")
    await stage.known()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repository_client, "INDEX_TIMEOUT_SECONDS", 0.05)
        shelf.lingers = True
        shelf.going_on.clear()
        stage.load("m", "a", ("a", "n"))
        await stage.until(lambda: shelf.unloads)
        shelf.frozen = True
        seen = len(shelf.asked)
        await stage.until(lambda: len(shelf.asked) > seen + 2)
        shelf.frozen = False
        shelf.going_on.set()
        await stage.until(lambda: stage.state(*A_M) == READY)
    assert stage.failures() == {}


# ---------------------------------------------------------------------- configurations


@acted(a=two)
async def test_a_model_that_is_removed_in_the_middle_of_its_load(stage: Stage) -> None:
    stage.follow("m", "n")
    await loading(stage)
    stage.follow("n")
    assert stage.ledger.reserved == {}
    await stage.until(lambda: not stage.placer.views().jobs)
    await stage.known()
    assert (stage.failures(), stage.state(*A_M)) == ({}, "")
    stage.shelves["a"].going_on.set()
    stage.load("n", "a")
    await stage.until(lambda: stage.state(*A_N) == READY)
    assert stage.ledger.reserved == {A_N: MODEL_BYTES}


@acted(a=two, b=with_n)
async def test_a_server_that_is_removed_in_the_middle_of_a_load(stage: Stage) -> None:
    stage.follow("m", "n")
    await loading(stage)
    stage.follow("m", "n", shelves=["b"])
    assert stage.ledger.reserved == {B_N: MODEL_BYTES}
    await stage.until(lambda: not stage.placer.views().jobs)
    stage.load("m", "b")
    await stage.until(lambda: stage.state(*B_M) == READY)


@acted(a=two, b=with_n)
async def test_a_load_loses_its_server_while_another_makes_room_for_it(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()

    async def drains(key: tuple[str, str]) -> bool:
        return await asyncio.Event().wait()

    stage.drains = drains
    stage.load("m", "a", ("b", "n"))
    await stage.until(lambda: stage.state(*B_N) == UNLOADED)
    stage.script.loads = []
    stage.follow("m", "n", shelves=["b"])
    await stage.until(lambda: stage.state(*B_N) == READY)
    assert stage.ledger.reserved == {B_N: MODEL_BYTES}
    assert stage.shelves["b"].unloads == []


@acted(a=two)
async def test_the_same_configuration_again_disturbs_nothing(stage: Stage) -> None:
    stage.follow("m", "n")
    await loading(stage)
    stage.follow("m", "n", m={"load_timeout": 7})
    stage.shelves["a"].going_on.set()
    await stage.until(lambda: stage.state(*A_M) == READY)
    assert stage.shelves["a"].loads == ["m"]


@acted(a=with_n, b=two)
async def test_another_server_under_the_name_is_looked_at_anew(stage: Stage) -> None:
    stage.follow("n", shelves=["a"])
    await stage.known()
    assert stage.state(*A_N) == READY
    stage.shelves = {"a": stage.shelves["b"]}
    stage.follow("n", shelves=["a"])
    assert stage.state(*A_N) == UNLOADED
    await stage.known()
    assert (stage.state(*A_N), stage.ledger.reserved) == (UNLOADED, {})


@acted(a=with_n)
async def test_a_model_that_is_no_longer_loaded_on_demand_is_as_its_probes_say(stage: Stage) -> None:
    made = stage.follow("m", "n")
    await stage.known()
    stage.members(_without_placement(made, "m"))
    assert (stage.state(*A_M), stage.anew[-1]) == (READY, A_M)
    assert [view.model for view in stage.placer.views().load_times] == ["n"]


@acted(a=with_n)
async def test_closing_in_the_middle_leaves_servers_and_ledger_as_they_are(stage: Stage) -> None:
    stage.follow("m", "n")
    await loading(stage)
    events_before = len(stage.events)
    await stage.placer.stopped()
    assert (stage.ledger.reserved, len(stage.events)) == ({A_M: MODEL_BYTES, A_N: MODEL_BYTES}, events_before)


def test_closing_ends_all_looks_and_those_that_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks_module, "MAX_CONCURRENT_POLLS", 1)

    async def work() -> None:
        async with staged(a=two(), b=two(), c=two()) as stage:
            for shelf in stage.shelves.values():
                shelf.frozen = True
            stage.follow("m")
            await stage.until(lambda: any(shelf.asked for shelf in stage.shelves.values()))
            await stage.placer.stopped()
            assert sum(len(shelf.asked) for shelf in stage.shelves.values()) == 1
            assert not [task for task in asyncio.all_tasks() if task.get_coro().__qualname__.startswith("IndexPoller.")]

    run(work())


def _without_placement(config: Config, model: str) -> Config:
    settings = msgspec.structs.replace(config.models[model], placement=None)
    return msgspec.structs.replace(config, models={**config.models, model: settings})
