"""The placer with the placement that really decides: models are where they are wanted."""

from __future__ import annotations

from functools import partial

import pytest

from steelyard.control.placing import shortages as shortages_module
from steelyard.control.placing.hands import Wish
from steelyard.core.placement import Placement
from steelyard.link.messages import Wanted

from ..driving import run
from .stage import READY, SIZE, UNLOADED, Shelf, Stage, staged

MODELS = ("m", "n", "o")


def test_models_come_when_they_are_wanted_and_go_when_others_are() -> None:
    async def work() -> None:
        async with staged(Placement(), a=Shelf(*MODELS), b=Shelf(*MODELS)) as stage:
            await scene(stage)

    async def scene(stage: Stage) -> None:
        stage.book.capacity = 2 * SIZE
        stage.follow(*MODELS, o={"pinned": True})
        await stage.until(lambda: "o" in ready(stage))  # it is pinned: nobody has to ask for it
        stage.placer.wanted(Wanted("m", 4, 2.0))
        await stage.until(lambda: ready(stage) == {"m", "o"})
        stage.wishes = {"n": Wish(waiting=4, work=4.0, oldest=1.0, rate=0.5)}
        stage.placer.wanted(Wanted("n", 4, 4.0))
        await stage.until(lambda: ready(stage) == {"n", "o"})
        stage.wishes = {"n": Wish(rate=0.5)}
        assert stage.book.most == stage.book.capacity
        assert len(stage.book.reserved) == 2
        await stage.until(lambda: not stage.placer.views().loading)
        assert sum(stage.state("m", replica) == UNLOADED for replica in "ab") == 2
        assert stage.setbacks() == {}

    run(work())


def test_a_server_where_a_load_fails_is_not_the_only_one() -> None:
    async def work() -> None:
        async with staged(Placement(), a=Shelf("m"), b=Shelf("m")) as stage:
            stage.follow("m")
            await stage.until(lambda: all(host.known for host in stage.placer.views().hosts))
            first, second = stage.shelves.values()
            refusals = {"a": first, "b": second}
            for shelf in refusals.values():
                shelf.watch = partial(only_once, refusals)
            stage.placer.wanted(Wanted("m", 4, 2.0))
            await stage.until(lambda: ready(stage) == {"m"})
            assert (first.loads, second.loads) == (["m"], ["m"])
            assert len(stage.setbacks()) == 1

    def only_once(refusals: dict[str, Shelf], what: str, model: str) -> None:
        """The first that is asked refuses."""
        for shelf in refusals.values():
            shelf.refuse = "no weights" if sum(len(s.loads) for s in refusals.values()) == 1 else ""

    run(work())


def test_what_a_server_keeps_for_later_is_room_there() -> None:
    async def work() -> None:
        async with staged(Placement(), a=Shelf("m"), b=Shelf("m")) as stage:
            stage.book.capacity, stage.book.kept = 0, {"b": SIZE}
            stage.follow("m")
            stage.placer.wanted(Wanted("m", 4, 2.0))
            await stage.until(lambda: ready(stage) == {"m"})
            assert (stage.state("m", "a"), stage.state("m", "b")) == (UNLOADED, READY)

    run(work())


def test_a_model_that_is_waited_for_and_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortages_module, "WAITED", 0.1)

    async def work() -> None:
        async with staged(Placement(), a=Shelf("m", "n", ready=["n"])) as stage:
            stage.book.capacity = SIZE
            stage.follow("m", "n", n={"pinned": True})
            stage.wishes = {"m": Wish(waiting=4, work=4.0, oldest=1.0, rate=0.5)}
            await stage.until(stage.placer.alarms)
            (alarm,) = stage.placer.alarms()
            assert (alarm.code, alarm.what) == (
                "no_room",
                "m has no place: it needs 10 B; gpu may give out 10 B, 0 B of it free, pinned: n 10 B",
            )
            stage.book.capacity = 2 * SIZE
            await stage.until(lambda: ready(stage) == {"m", "n"})
            await stage.until(lambda: not stage.placer.alarms())

    run(work())


def ready(stage: Stage) -> set[str]:
    return {model for (model, _), standing in stage.standings.items() if standing.state.value == READY}
