"""Loads, refusals, crashes and configurations at random: no load without its room, nothing unloaded that is in use, and
at rest the ledger has exactly what the servers have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from steelyard.control.placement import index_poller as settling_module
from steelyard.control.placement import job as job_module
from steelyard.control.placement import load_history
from steelyard.core.placement.planner import LoadDecision, ModelDemand, PlacementPlanner, ServerState
from steelyard.core.replica import Event

from ..driving import run
from .stage import HELD, MODEL_BYTES, READY, Shelf, Stage, staged

MODELS = tuple("mnopqr")
CHAOS_STEPS = 80


class AtRandom(PlacementPlanner):
    """Whatever may be asked for, and some things that may not."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.resting = False

    def decide(
        self, servers: Sequence[ServerState], rooms: Mapping[str, int], demands: Mapping[str, ModelDemand], now: float
    ) -> list[LoadDecision]:
        if self.resting or self.rng.random() < 0.5:
            return []
        there = [(server.server, holding.model) for server in servers for holding in server.copies]
        evict = tuple(self.rng.sample(there, min(len(there), self.rng.randrange(3))))
        return [LoadDecision(self.rng.choice(MODELS), self.rng.choice(servers).server, evict)]


class Witness:
    """Looks at each load and unload as it comes to a server."""

    def __init__(self, stage: Stage, replica: str) -> None:
        self.stage, self.replica = stage, replica
        self.wrong: list[str] = []

    def __call__(self, what: str, model: str) -> None:
        key = (model, self.replica)
        # Of one that was just removed from the configuration, the question may still be under way.
        if what == "load" and key in self.stage.statuses and key not in self.stage.ledger.reserved:
            self.wrong.append(f"{key} is loaded without room")
        if what == "load" and self.stage.shelves[self.replica].models[model] in HELD:
            self.wrong.append(f"{key} is loaded twice")
        if what == "unload" and self.stage.running.get(key):
            self.wrong.append(f"{key} is unloaded with requests in flight")


@pytest.mark.interpreted("derives a class from a compiled one")
@pytest.mark.parametrize("seed", range(4))
def test_anything_may_happen(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, seconds in (
        (settling_module, "REFUSED_GRACE_SECONDS", 0.02),
        (settling_module, "MAX_RETRY_SECONDS", 0.02),
        (settling_module, "TRANSITION_POLL_SECONDS", 0.02),
        (settling_module, "POLL_INTERVAL_SECONDS", 0.1),
        (settling_module, "OVER_BUDGET_GRACE_SECONDS", 0.1),
        (load_history, "MAX_RETRY_SECONDS", 0.02),
        (job_module, "MAX_RESERVE_SECONDS", 0.05),
    ):
        monkeypatch.setattr(module, name, seconds)
    run(_work(Random(seed)))


async def _work(rng: Random) -> None:
    shelves = {name: Shelf(*MODELS, ready=rng.sample(MODELS, 2)) for name in "abc"}
    placement = AtRandom(rng)
    async with staged(placement, **shelves) as stage:
        witnesses = [Witness(stage, name) for name in shelves]
        for shelf, witness in zip(shelves.values(), witnesses, strict=True):
            shelf.watch = witness
        stage.ledger.capacity = 6 * MODEL_BYTES
        stage.follow(*MODELS)
        for _ in range(CHAOS_STEPS):
            await _step(stage, rng)
            assert stage.ledger.most <= stage.ledger.capacity
        await _rest(stage, placement)
        assert [wrong for witness in witnesses for wrong in witness.wrong] == []
        assert any(shelf.loads for shelf in shelves.values()), "something must have happened"


async def _step(stage: Stage, rng: Random) -> None:
    name = rng.choice(list(stage.shelves))
    shelf = stage.shelves[name]
    match rng.randrange(9):
        case 0:
            shelf.refuse = rng.choice(["", "", "no"])
        case 1:
            shelf.going_on.clear()
        case 2 | 3:
            shelf.going_on.set()
        case 4:
            shelf.lingers = not shelf.lingers
        case 5 if rng.random() < 0.5:
            await shelf.crash()
            if rng.random() < 0.5:
                await asyncio.sleep(0.03)
            shelf.going_on.set()
            await shelf.start()
        case 6:
            key = (rng.choice(MODELS), name)
            if stage.state(*key) == READY:
                stage.running[key] = 1
                stage.move(key, rng.choice([Event.LIVE, Event.LOST, Event.EJECT, Event.LOADED]))
        case 7:
            stage.running.clear()
        case 8:
            some = rng.sample(MODELS, rng.randrange(3, len(MODELS) + 1))
            for key in [key for key in stage.running if key[0] not in some]:
                del stage.running[key]
            stage.follow(*some)
    for _ in range(3):
        stage.placer.tick(asyncio.get_running_loop().time())
        await asyncio.sleep(0.005)


async def _rest(stage: Stage, placement: AtRandom) -> None:
    """Nothing is wanted any more, and nobody makes trouble."""
    placement.resting = True
    stage.running.clear()
    for shelf in stage.shelves.values():
        shelf.refuse, shelf.lingers = "", False
        shelf.going_on.set()
    stage.follow(*MODELS)
    await stage.until(lambda: not stage.placer.views().jobs and _agree(stage))


def _agree(stage: Stage) -> bool:
    """What the servers have, what the ledger has, and what the fleet believes."""
    there = _there(stage)
    for key in there:
        stage.move(key, Event.LOADED)  # probes see it so
    believed = {key for key, status in stage.statuses.items() if status.state.value in (READY, "ejected")}
    return dict.fromkeys(there, MODEL_BYTES) == stage.ledger.reserved and believed == there


def _there(stage: Stage) -> set[tuple[str, str]]:
    return {(m, name) for name, shelf in stage.shelves.items() for m, state in shelf.models.items() if state in HELD}
