"""The fleet: another configuration takes the place of the one in force."""

from __future__ import annotations

import asyncio

import pytest

from steelyard.control.errors import SharedMemoryFullError
from steelyard.control.fleet.active_config import MIN_LEDGER_COLUMNS
from steelyard.core.replica import Event
from steelyard.link.messages import Apply, MemberUpdate, ReplicaEvents, ReplicaFailure

from ..fakes import HERE, MOVED, ONE, THERE, TWO, UNPROBED, A, B, Played, acted, made, play, replica


@acted(ONE)
async def test_a_new_configuration_keeps_what_is_known_of_those_who_stay(stage: Played) -> None:
    stage.prober.sees(A)
    await stage.settle()
    assert await stage.fleet.configure(made(TWO)) == ""
    await stage.settle()
    assert [w.states() for w in stage.worker_pool.workers.values()] == [{A: "ready", B: "starting"}] * 2
    stage.prober.sees(B)
    await stage.settle()
    assert stage.everywhere(B) == {"ready"}


@acted(ONE)
async def test_what_is_seen_while_it_is_on_its_way_is_told(stage: Played) -> None:
    stage.worker_pool.slow = True
    changing = asyncio.create_task(stage.fleet.configure(made(TWO)))
    await stage.settle()
    stage.prober.sees(A)
    await stage.settle()
    assert stage.worker_pool.hire(7).states()[A] == "ready"
    stage.worker_pool.answer()
    assert await changing == ""
    assert stage.everywhere(A) == {"ready"}


@acted(ONE)
async def test_nothing_seen_before_or_meanwhile_reaches_another_server_under_the_same_name(stage: Played) -> None:
    stage.worker_pool.slow = True
    stage.prober.sees(A)  # in the very turn in which the configuration goes out
    changing = asyncio.create_task(stage.fleet.configure(made(MOVED)))
    await asyncio.sleep(0)
    stage.prober.sees(A)
    await stage.settle()
    assert stage.everywhere(A) == {"starting"}
    stage.worker_pool.answer()
    assert await changing == ""
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("starting", {"starting"})


@acted(ONE)
async def test_what_was_seen_in_the_turn_of_a_change_goes_out_before_it(stage: Played) -> None:
    stage.worker_pool.heard.clear()
    stage.prober.sees(A)
    assert await stage.fleet.configure(made(MOVED)) == ""
    await stage.settle()
    assert stage.worker_pool.kinds()[:2] == ["ReplicaEvents", "Apply"]
    assert stage.everywhere(A) == {"starting"}


@acted(ONE)
async def test_a_refused_configuration_leaves_everything_as_it_was(stage: Played) -> None:
    stage.prober.sees(A)
    await stage.settle()
    refused = MOVED.replace("models: {", "models: {refused: {}, ")
    assert "no such certificate" in await stage.fleet.configure(made(refused))
    await stage.settle()
    assert stage.fleet.config == made(ONE)
    assert set(stage.fleet.health.statuses) == set(stage.prober.targets) == {A}
    stage.prober.sees(A)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})
    assert {w.urls()[A] for w in stage.worker_pool.workers.values()} == {HERE}


def test_one_that_does_not_fit_leaves_everything_as_it_was() -> None:
    many = ", ".join(f"{{url: 'http://10.0.0.1:{n + 1}'}}" for n in range(MIN_LEDGER_COLUMNS + 1))

    async def scene(stage: Played) -> None:
        stage.prober.sees(A)
        await stage.settle()
        with pytest.raises(SharedMemoryFullError):
            await stage.fleet.configure(made(f"models: {{m: {{replicas: [{many}]}}}}"))
        await stage.settle()
        assert set(stage.fleet.health.statuses) == set(stage.prober.targets) == {A}
        stage.fleet.worker_notice(ReplicaFailure(*A, True))
        stage.prober.sees(A)
        await stage.settle()
        assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})

    play(ONE, scene)


@acted(ONE)
async def test_sources_that_change_meanwhile_are_heard_afterwards(stage: Played) -> None:
    stage.worker_pool.slow = True
    changing = asyncio.create_task(stage.fleet.configure(made(TWO)))
    await stage.settle()
    stage.fleet.members.discovered("m", (replica("c", "http://127.0.0.1:11"),))
    assert ("m", "c") not in stage.worker_pool.workers[0].states()
    stage.worker_pool.answer()
    assert await changing == ""
    await stage.settle()
    assert stage.everywhere(("m", "c")) == {"starting"}
    assert ("m", "c") in stage.prober.targets


@acted(ONE)
async def test_health_that_is_no_longer_asked_for_makes_everybody_ready(stage: Played) -> None:
    stage.prober.sees(A, Event.LOST)
    await stage.settle()
    assert await stage.fleet.configure(made(UNPROBED)) == ""
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})
    assert await stage.fleet.configure(made(ONE)) == ""
    stage.prober.sees(A, Event.LIVE)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("loading", {"loading"})


@acted(ONE)
async def test_trouble_that_crosses_the_end_of_probing_keeps_nobody_out(stage: Played) -> None:
    """A worker took it out before it had the new configuration; nobody would ever say that it is ready."""
    stage.prober.sees(A)
    await stage.settle()
    stage.worker_pool.slow = True
    changing = asyncio.create_task(stage.fleet.configure(made(UNPROBED)))
    await stage.settle()
    stage.fleet.worker_notice(ReplicaFailure(*A, True))
    stage.worker_pool.answer()
    assert await changing == ""
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})


def test_a_model_that_goes_and_comes_back_begins_anew() -> None:
    other = "models: {n: {replicas: [{id: a, url: 'http://127.0.0.1:9'}]}}"

    async def scene(stage: Played) -> None:
        stage.prober.sees(A)
        stage.fleet.health.drained.add(A)
        stage.fleet.transition(A, Event.DRAIN, "an operator drains it")
        stage.fleet.members.registry.weight_overrides[A] = 3.0
        assert await stage.fleet.configure(made(other)) == ""
        assert (set(stage.fleet.health.statuses), stage.fleet.health.drained) == ({("n", "a")}, set())
        assert await stage.fleet.configure(made(ONE)) == ""
        await stage.settle()
        assert stage.everywhere(A) == {"starting"}
        assert stage.fleet.config == made(ONE)

    play(ONE, scene)


def test_two_models_on_one_server_stand_apart() -> None:
    both = "models: {m: {replicas: [{id: a, url: 'http://127.0.0.1:9'}]}, n: {replicas: [{id: a, url: 'http://127.0.0.1:9'}]}}"

    async def scene(stage: Played) -> None:
        stage.prober.sees(A)
        stage.prober.sees(("n", "a"))
        stage.fleet.transition(A, Event.DRAIN, "an operator drains it")
        await stage.settle()
        assert (stage.everywhere(A), stage.everywhere(("n", "a"))) == ({"draining"}, {"ready"})

    play(both, scene)


@acted(ONE)
async def test_a_worker_that_comes_while_a_configuration_is_on_its_way_ends_like_the_others(stage: Played) -> None:
    stage.prober.sees(A)
    await stage.settle()
    stage.worker_pool.slow = True
    changing = asyncio.create_task(stage.fleet.configure(made(MOVED)))
    await stage.settle()
    late = stage.worker_pool.hire(7)
    stage.worker_pool.answer()
    assert await changing == ""
    await stage.settle()
    assert late.states() == {A: "starting"}
    assert late.urls() == {A: THERE}
    stage.prober.sees(A)
    await stage.settle()
    assert stage.everywhere(A) == {"ready"}


@acted(ONE)
async def test_messages_are_what_workers_can_read(stage: Played) -> None:
    stage.fleet.members.discovered("m", (replica("b", THERE),))
    stage.prober.sees(A)
    await stage.settle()
    await stage.fleet.configure(made(TWO))
    assert {type(message) for message in stage.worker_pool.heard} >= {Apply, MemberUpdate, ReplicaEvents}
