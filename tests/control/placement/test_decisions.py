"""The placer with the placement that really decides: models are where they are wanted."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from steelyard.control.placement import views as shortages_module
from steelyard.control.placement.model_demand import ReportedDemand
from steelyard.core.placement.planner import LoadDecision, PlacementPlanner
from steelyard.link.messages import ReplicaDemand

from ..driving import run
from .stage import MODEL_BYTES, READY, UNLOADED, FakeLedger, Shelf, Stage, staged

MODELS = ("m", "n", "o")


def test_models_come_when_they_are_wanted_and_go_when_others_are() -> None:
    async def work() -> None:
        async with staged(PlacementPlanner(), a=Shelf(*MODELS), b=Shelf(*MODELS)) as stage:
            await scene(stage)

    async def scene(stage: Stage) -> None:
        stage.ledger.capacity = 2 * MODEL_BYTES
        stage.follow(*MODELS, o={"pinned": True})
        await stage.until(lambda: "o" in ready(stage))  # it is pinned: nobody has to ask for it
        stage.wanted(ReplicaDemand("m", 4, 2.0))
        await stage.until(lambda: ready(stage) == {"m", "o"})
        stage.demands = {"n": ReportedDemand(waiting=4, work=4.0, oldest=1.0, rate=0.5)}
        stage.wanted(ReplicaDemand("n", 4, 4.0))
        await stage.until(lambda: ready(stage) == {"n", "o"})
        stage.demands = {"n": ReportedDemand(rate=0.5)}
        assert stage.ledger.most == stage.ledger.capacity
        assert len(stage.ledger.reserved) == 2
        await stage.until(lambda: not stage.placer.views().jobs)
        assert sum(stage.state("m", replica) == UNLOADED for replica in "ab") == 2
        assert stage.failures() == {}

    run(work())


def test_a_server_where_a_load_fails_is_not_the_only_one() -> None:
    async def work() -> None:
        async with staged(PlacementPlanner(), a=Shelf("m"), b=Shelf("m")) as stage:
            stage.follow("m")
            await stage.until(lambda: all(host.known for host in stage.placer.views().hosts))
            first, second = stage.shelves.values()
            refusals = {"a": first, "b": second}
            for shelf in refusals.values():
                shelf.watch = partial(only_once, refusals)
            stage.wanted(ReplicaDemand("m", 4, 2.0))
            await stage.until(lambda: ready(stage) == {"m"})
            assert (first.loads, second.loads) == (["m"], ["m"])
            assert len(stage.failures()) == 1

    def only_once(refusals: dict[str, Shelf], what: str, model: str) -> None:
        """The first that is asked refuses."""
        for shelf in refusals.values():
            shelf.refuse = "no weights" if sum(len(s.loads) for s in refusals.values()) == 1 else ""

    run(work())


def test_what_a_server_keeps_for_later_is_room_there() -> None:
    async def work() -> None:
        async with staged(PlacementPlanner(), a=Shelf("m"), b=Shelf("m")) as stage:
            stage.ledger.capacity, stage.ledger.kept = 0, {"b": MODEL_BYTES}
            stage.follow("m")
            stage.wanted(ReplicaDemand("m", 4, 2.0))
            await stage.until(lambda: ready(stage) == {"m"})
            assert (stage.state("m", "a"), stage.state("m", "b")) == (UNLOADED, READY)

    run(work())


def test_a_model_that_is_waited_for_and_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortages_module, "ALARM_DELAY_SECONDS", 0.1)

    async def work() -> None:
        async with staged(PlacementPlanner(), a=Shelf("m", "n", ready=["n"])) as stage:
            stage.ledger.capacity = MODEL_BYTES
            stage.follow("m", "n", n={"pinned": True})
            stage.demands = {"m": ReportedDemand(waiting=4, work=4.0, oldest=1.0, rate=0.5)}
            await stage.until(stage.alarms)
            (alarm,) = stage.alarms()
            assert (alarm.code, alarm.message) == (
                "insufficient_memory",
                "m has no place: it needs 10 B; gpu may give out 10 B, 0 B of it free, pinned: n 10 B",
            )
            stage.ledger.capacity = 2 * MODEL_BYTES
            await stage.until(lambda: ready(stage) == {"m", "n"})
            await stage.until(lambda: not stage.alarms())

    run(work())


def ready(stage: Stage) -> set[str]:
    return {model for (model, _), status in stage.statuses.items() if status.state.value == READY}


class OneEach(FakeLedger):
    """Each replica is on a device of its own, which holds one model."""

    def of(self, replica: str) -> int:
        return MODEL_BYTES - sum(amount for key, amount in self.reserved.items() if key[1] == replica)

    def free_bytes(self) -> dict[str, int]:
        return {f"gpu-{replica}": self.of(replica) for replica in "ab"}

    def budgets(self) -> dict[str, int]:
        return {f"gpu-{replica}": MODEL_BYTES for replica in "ab"}

    def free_bytes_at(self, key: tuple[str, str]) -> int:
        return self.of(key[1])

    def reserve(self, key: tuple[str, str], amount: int) -> bool:
        if amount > self.of(key[1]):
            return False
        self.reserved[key] = amount
        return True

    def is_over(self, key: tuple[str, str], now: float) -> bool:
        return False


class Counting(PlacementPlanner):
    asked = 0

    def decide(self, *known: Any) -> list[LoadDecision]:
        self.asked += 1
        return super().decide(*known)


@pytest.mark.interpreted("derives a class from a compiled one")
@pytest.mark.parametrize("load_time", [2, 0.05])
@pytest.mark.parametrize("slow", ["unload", "drain"])
def test_one_request_evicts_a_model_on_one_server_however_long_that_takes(slow: str, load_time: float) -> None:
    """Two servers, three models, each device holds one: while the first makes room, the second is left alone."""

    async def work() -> None:
        shelves = {"a": Shelf(*MODELS, ready=["m"]), "b": Shelf(*MODELS, ready=["n"])}
        placement = Counting()
        async with staged(placement, OneEach(), **shelves) as stage:
            await scene(stage, placement)

    async def scene(stage: Stage, placement: Counting) -> None:
        drained = asyncio.Event()
        if slow == "drain":
            stage.drains = lambda key: drained.wait()
        else:
            for shelf in stage.shelves.values():  # as Triton does it: 1.6 s
                shelf.lingers = True
                shelf.going_on.clear()
        stage.devices = {"a": "gpu-a", "b": "gpu-b"}
        stage.follow(*MODELS, **{model: {"load_time": load_time} for model in MODELS})
        await stage.until(lambda: ready(stage) == {"m", "n"})
        await stage.until(lambda: asks(stage) and stage.placer.views().jobs)
        before = placement.asked
        await stage.until(lambda: asks(stage) and placement.asked > before + 10)
        assert len(stage.placer.views().jobs) == 1
        drained.set()
        for shelf in stage.shelves.values():
            shelf.going_on.set()
        await stage.until(lambda: "o" in ready(stage))
        assert sum(len(shelf.unloads) for shelf in stage.shelves.values()) == 1
        assert len(ready(stage)) == 2

    def asks(stage: Stage) -> bool:
        """One request waits."""
        stage.wanted(ReplicaDemand("o", 1, 1.0))
        return True

    run(work())
