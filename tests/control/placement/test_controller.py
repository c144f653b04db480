"""The placer with servers that answer: what it finds there, loads, and makes room for."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from steelyard.control.placement import index_poller as settling_module
from steelyard.control.placement import job as job_module
from steelyard.control.placement.model_demand import ReportedDemand
from steelyard.core.replica import Event
from steelyard.link.messages import ReplicaDemand, StartProgress

from .stage import LOADING, MODEL_BYTES, READY, UNLOADED, Shelf, Stage, acted

two = partial(Shelf, "m", "n")
with_n = partial(Shelf, "m", "n", ready=["n"])
A_M, A_N, B_M = ("m", "a"), ("n", "a"), ("m", "b")


@acted(a=with_n)
async def test_what_a_server_has_counts_at_once_and_gets_requests(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()
    assert stage.ledger.reserved == {A_N: MODEL_BYTES}
    assert stage.ledger.measured == [A_N]
    assert (stage.state(*A_M), stage.state(*A_N)) == (UNLOADED, READY)
    assert stage.events[:2] == [(A_M, Event.UNLOAD), (A_N, Event.UNLOAD)], "nobody gets anything before it is known"
    room = stage.script.servers[stage.server("a")]
    assert [(h.model, h.size, h.state, h.in_flight) for h in room.copies] == [("n", MODEL_BYTES, "resident", 0)]
    assert (room.device, room.loadable_models, room.busy) == ("gpu", {"m", "n"}, False)


@acted(a=two, b=partial(Shelf, "m"))
async def test_nothing_is_decided_before_all_servers_were_looked_at(stage: Stage) -> None:
    stage.shelves["b"].frozen = True
    stage.follow("m")
    stage.load("m", "a")
    await stage.until(lambda: stage.shelves["b"].asked)
    for _ in range(5):
        await asyncio.sleep(0.01)
        stage.placer.tick(asyncio.get_running_loop().time())
    assert stage.script.asked == 0
    await stage.shelves["b"].stop()
    await stage.until(lambda: stage.state(*A_M) == READY)


@acted(a=two)
async def test_a_model_that_is_wanted_is_loaded(stage: Stage) -> None:
    shelf = stage.shelves["a"]
    stage.follow("m", "n")
    await stage.known()
    shelf.going_on.clear()
    seen: list[str] = []
    shelf.watch = lambda what, model: seen.append(f"{what} with {stage.ledger.reserved}")
    stage.demands = {"m": ReportedDemand(rate=0.5)}
    stage.load("m", "a")
    stage.wanted(ReplicaDemand("m", 3, 1.5))
    await stage.until(lambda: shelf.loads)
    demand = stage.script.demands["m"]
    assert (demand.size, demand.load_seconds, demand.waiting, demand.waiting_work) == (MODEL_BYTES, 2.0, 3, 1.5)
    assert (demand.rate, demand.pinned) == (0.5, False)
    assert f"load with {stage.ledger.reserved}" in seen, "its room is reserved before it is loaded"
    assert (stage.state(*A_M), stage.sent[-1]) == (LOADING, StartProgress("m", 2.0))
    assert [coming.model for coming in stage.placer.initial_state()] == ["m"]
    (view,) = stage.placer.views().jobs
    assert (view.model, view.replica, view.stage, view.reason) == ("m", "a", "loading", "it is wanted")
    shelf.going_on.set()
    await stage.until(lambda: stage.state(*A_M) == READY)
    assert (shelf.loads, stage.anew, stage.ledger.measured) == (["m"], [A_M], [A_M])
    assert stage.ledger.reserved == {A_M: MODEL_BYTES}
    await stage.until(lambda: not stage.placer.views().jobs)
    (time,) = [view for view in stage.placer.views().load_times if view.model == "m"]
    assert time.measured
    await stage.until(lambda: stage.script.demands["m"].waiting == 0)


@acted(a=two)
async def test_a_decision_that_is_made_again_and_again_is_one_load(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()
    stage.shelves["a"].going_on.clear()
    stage.load("m", "a")
    await stage.until(lambda: stage.shelves["a"].loads)
    before = stage.script.asked
    await stage.until(lambda: stage.script.asked > before + 3)
    assert stage.script.servers[stage.server("a")].busy
    stage.shelves["a"].going_on.set()
    await stage.until(lambda: stage.state(*A_M) == READY)
    before = stage.script.asked
    await stage.until(lambda: stage.script.asked > before + 3)
    assert stage.shelves["a"].loads == ["m"]


@acted(a=with_n)
async def test_room_is_made_by_one_that_has_finished_what_it_had(stage: Stage) -> None:
    shelf = stage.shelves["a"]
    stage.ledger.capacity = MODEL_BYTES
    stage.follow("m", "n")
    await stage.known()
    stage.running[A_N] = 1
    drained = asyncio.Event()

    async def drains(key: tuple[str, str]) -> bool:
        return await drained.wait()

    stage.drains = drains
    stage.load("m", "a", ("a", "n"))
    await stage.until(lambda: stage.state(*A_N) == UNLOADED)
    assert [view.stage for view in stage.placer.views().jobs] == ["draining"]
    assert (shelf.unloads, stage.ledger.reserved) == ([], {A_N: MODEL_BYTES})
    shelf.lingers = True  # as Triton does it: answered at once, done later
    shelf.going_on.clear()
    drained.set()
    await stage.until(lambda: shelf.paths()[-3:] == ["/v2/repository/index"] * 3)
    assert [view.stage for view in stage.placer.views().jobs] == ["unloading"]
    assert (shelf.unloads, shelf.loads, stage.ledger.reserved) == (["n"], [], {A_N: MODEL_BYTES})
    shelf.going_on.set()
    await stage.until(lambda: stage.state(*A_M) == READY)
    assert (shelf.loads, stage.ledger.reserved, stage.ledger.most) == (["m"], {A_M: MODEL_BYTES}, MODEL_BYTES)
    assert stage.state(*A_N) == UNLOADED
    assert any("in place of n" in note for note in stage.notes)


@acted(a=two, b=partial(Shelf, "m", "n", ready=["n"]))
async def test_room_is_made_on_another_server_of_the_device(stage: Stage) -> None:
    stage.ledger.capacity = MODEL_BYTES
    stage.follow("m", "n")
    await stage.known()
    stage.load("m", "a", ("b", "n"))
    await stage.until(lambda: stage.state(*A_M) == READY)
    assert (stage.shelves["b"].unloads, stage.shelves["a"].loads) == (["n"], ["m"])
    assert stage.ledger.reserved == {A_M: MODEL_BYTES}


@acted(a=with_n)
async def test_requests_that_do_not_end_are_not_cut_off(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()
    stage.running[A_N] = 1
    stage.load("m", "a", ("a", "n"))
    await stage.until(stage.failures)
    assert stage.failures() == {A_M: "drain_timeout"}
    assert (stage.state(*A_M), stage.state(*A_N)) == (UNLOADED, READY), "it goes on as before"
    assert (stage.shelves["a"].unloads, stage.shelves["a"].loads) == ([], [])
    assert stage.ledger.reserved == {A_N: MODEL_BYTES}
    await stage.known()
    assert stage.script.servers[stage.server("a")].loadable_models == {"n"}, "not again at once"


@acted(a=with_n)
async def test_an_unload_that_is_refused_puts_the_model_back(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()
    stage.shelves["a"].refuse = "not\nallowed"
    stage.load("m", "a", ("a", "n"))
    await stage.until(stage.failures)
    assert stage.failures() == {A_M: "unload_failed"}
    (view,) = stage.placer.views().failures
    assert view.message == f"n at {stage.server('a')} was not unloaded: answers 400: not allowed"
    assert stage.ledger.reserved == {A_N: MODEL_BYTES}
    await stage.until(lambda: stage.state(*A_N) == READY)
    assert stage.shelves["a"].loads == []


@acted(a=two)
async def test_a_load_that_is_refused_gives_its_room_back_and_is_tried_again_later(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()
    stage.shelves["a"].refuse = "no such weights"
    stage.load("m", "a")
    await stage.until(stage.failures)
    (view,) = stage.placer.views().failures
    assert view.message == f"m was not loaded at {stage.server('a')}: answers 400: no such weights"
    assert (view.consecutive_failures, view.reason) == (1, "load_failed")
    assert any("no such weights" in note for note in stage.notes)
    await stage.until(lambda: not stage.ledger.reserved)
    assert stage.state(*A_M) == UNLOADED
    await stage.known()
    assert stage.script.servers[stage.server("a")].loadable_models == {"n"}
    stage.shelves["a"].refuse = ""
    await stage.until(lambda: stage.state(*A_M) == READY)
    await stage.until(lambda: not stage.failures())
    assert stage.shelves["a"].loads == ["m", "m"]


@acted(a=two)
async def test_a_load_that_takes_too_long_keeps_its_room_until_it_is_known_what_became_of_it(stage: Stage) -> None:
    shelf = stage.shelves["a"]
    stage.follow("m", "n", m={"load_timeout": 1})
    await stage.known()
    shelf.going_on.clear()
    stage.load("m", "a")
    await stage.until(stage.failures)
    stage.script.loads = []
    assert stage.failures() == {A_M: "load_timeout"}
    assert (stage.state(*A_M), stage.ledger.reserved) == (UNLOADED, {A_M: MODEL_BYTES})
    seen = len(shelf.asked)
    await stage.until(lambda: len(shelf.asked) > seen)
    await stage.known()
    assert [h.state for h in stage.script.servers[stage.server("a")].copies] == ["loading"]
    assert stage.ledger.reserved == {A_M: MODEL_BYTES}, "it may be there any moment"
    shelf.models["m"] = "READY"
    await stage.until(lambda: stage.state(*A_M) == READY)
    assert (stage.ledger.reserved, shelf.loads) == ({A_M: MODEL_BYTES}, ["m"])


@acted(a=with_n)
async def test_no_load_without_room(stage: Stage) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_module, "MAX_RESERVE_SECONDS", 0.1)
        stage.ledger.capacity = MODEL_BYTES
        stage.follow("m", "n")
        await stage.known()
        stage.load("m", "a")
        await stage.until(stage.failures)
    assert stage.failures() == {A_M: "insufficient_memory"}
    assert (stage.shelves["a"].loads, stage.ledger.reserved) == ([], {A_N: MODEL_BYTES})


@acted(a=with_n)
async def test_room_may_take_a_moment_to_show(stage: Stage) -> None:
    stage.ledger.capacity = MODEL_BYTES
    stage.follow("m", "n")
    await stage.known()
    stage.load("m", "a")
    await stage.until(lambda: [view.stage for view in stage.placer.views().jobs] == ["waiting for room"])
    stage.ledger.capacity = 2 * MODEL_BYTES
    await stage.until(lambda: stage.state(*A_M) == READY)


@acted(a=partial(Shelf, "m", "n", ready=["m", "n"]))
async def test_what_is_there_without_room_for_it_has_to_go(stage: Stage) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settling_module, "OVER_BUDGET_GRACE_SECONDS", 0.3)
        stage.ledger.capacity = MODEL_BYTES
        stage.follow("m", "n", n={"pinned": True})
        await stage.until(lambda: stage.shelves["a"].unloads)
        await stage.until(lambda: not stage.placer.views().jobs)
        await stage.known()
    assert stage.shelves["a"].unloads == ["m"], "the pinned one stays"
    assert "m/a: to be unloaded: it was found there, and gpu has no room for it" in stage.notes
    assert (stage.state(*A_M), stage.state(*A_N)) == (UNLOADED, READY)
    assert stage.ledger.reserved == {A_N: MODEL_BYTES}


@acted(a=partial(Shelf, "m", "n", ready=["m", "n"]))
async def test_what_is_found_stays_if_the_device_has_room_in_truth(stage: Stage) -> None:
    """What it holds may have been taken for a stranger's, so that it was counted twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settling_module, "OVER_BUDGET_GRACE_SECONDS", 0.0)
        patch.setattr(settling_module, "POLL_INTERVAL_SECONDS", 0.05)
        stage.ledger.capacity = stage.ledger.in_use = MODEL_BYTES
        stage.follow("m", "n")
        await stage.known()
        asked = len(stage.shelves["a"].asked)
        await stage.until(lambda: len(stage.shelves["a"].asked) > asked + 2)
        assert (stage.state(*A_M), stage.state(*A_N)) == (READY, READY)
        assert stage.shelves["a"].unloads == []
        stage.ledger.in_use = 2 * MODEL_BYTES  # by whomever, later: nothing is unloaded for that
        await stage.until(lambda: len(stage.shelves["a"].asked) > asked + 5)
    assert (stage.shelves["a"].unloads, stage.ledger.reserved) == ([], {A_M: MODEL_BYTES, A_N: MODEL_BYTES})


@acted(a=two)
async def test_an_operators_drain_keeps_models_from_being_loaded_there(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()
    stage.move(A_M, Event.DRAIN)
    await stage.known()
    assert stage.script.servers[stage.server("a")].loadable_models == {"n"}
    stage.move(A_M, Event.UNDRAIN)
    assert stage.state(*A_M) == UNLOADED, "the drain is over, and it is still not loaded"
    await stage.known()
    assert stage.script.servers[stage.server("a")].loadable_models == {"m", "n"}


@acted(a=with_n)
async def test_nobody_counts_on_a_copy_that_is_drained(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()
    stage.move(A_N, Event.DRAIN)
    await stage.known()
    assert [h.state for h in stage.script.servers[stage.server("a")].copies] == ["unloading"]


@acted(a=with_n)
async def test_an_operator_may_load_and_unload(stage: Stage) -> None:
    asked = stage.placer.request
    stage.follow("m", "n")
    assert "cannot be asked now" in asked(A_M, load=True)
    await stage.known()
    assert asked(("x", "a"), load=True) == "x is not loaded on demand"
    assert asked(A_N, load=True) == "n is loaded there already"
    assert asked(A_M, load=False) == "m is not loaded there already"
    assert asked(A_M, load=True) == ""
    assert "is loading or unloading" in asked(A_N, load=False)
    await stage.until(lambda: stage.state(*A_M) == READY and not stage.placer.views().jobs)
    assert asked(A_M, load=False) == ""
    await stage.until(lambda: not stage.placer.views().jobs)
    assert (stage.state(*A_M), stage.ledger.reserved) == (UNLOADED, {A_N: MODEL_BYTES})
    stage.follow("m", "n", n={"pinned": True})
    assert "is pinned" in asked(A_N, load=False)


@acted(a=with_n)
async def test_somebody_else_may_unload_and_load(stage: Stage) -> None:
    shelf = stage.shelves["a"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settling_module, "POLL_INTERVAL_SECONDS", 0.05)
        stage.follow("m", "n")
        await stage.known()
        shelf.models |= {"n": "UNAVAILABLE", "m": "READY"}
        await stage.until(lambda: (stage.state(*A_M), stage.state(*A_N)) == (READY, UNLOADED))
        assert stage.ledger.reserved == {A_M: MODEL_BYTES}
        shelf.models["m"] = "UNLOADING"
        await stage.until(lambda: stage.state(*A_M) == UNLOADED)
        assert stage.ledger.reserved == {A_M: MODEL_BYTES}, "it still holds its memory"
        shelf.models["m"] = "UNAVAILABLE"
        await stage.until(lambda: not stage.ledger.reserved)


@acted(a=two)
async def test_a_mistake_in_a_decision_ends_nothing(stage: Stage) -> None:
    stage.follow("m", "n")
    await stage.known()
    stage.script.loads = [None]  # type: ignore[list-item]
    before = stage.script.asked
    await stage.until(lambda: stage.script.asked > before + 1)
    stage.load("nobody", "a")
    await stage.until(lambda: stage.script.asked > before + 3)
    stage.load("m", "a", ("a", "n"))
    await stage.until(lambda: stage.script.asked > before + 5)
    assert stage.shelves["a"].loads == [], "a victim that is not there is a decision of yesterday"
    stage.load("m", "a")
    await stage.until(lambda: stage.state(*A_M) == READY)
