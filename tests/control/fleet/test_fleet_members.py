"""The fleet: replicas that come and go with their sources."""

from __future__ import annotations

import pytest

from steelyard.control.fleet.active_config import MIN_LEDGER_COLUMNS
from steelyard.core.replica import Event
from steelyard.link.messages import ReplicaFailure
from steelyard.protocols.load import EngineLoad

from ..fakes import EMPTY, THERE, A, B, Played, acted, play, replica


@acted(EMPTY)
async def test_replicas_come_and_go_with_their_sources(stage: Played) -> None:
    stage.fleet.members.discovered("m", (replica("a"), replica("b", THERE)))
    stage.prober.sees(A)
    await stage.settle()
    assert [w.states() for w in stage.worker_pool.workers.values()] == [{A: "ready", B: "starting"}] * 2
    stage.fleet.members.discovered("m", (replica("b", THERE),))
    await stage.settle()
    assert [w.states() for w in stage.worker_pool.workers.values()] == [{B: "starting"}] * 2
    assert set(stage.fleet.health.statuses) == set(stage.prober.targets) == {B}
    assert stage.fleet.config.models["m"].replicas == (replica("b", THERE),)


@acted(EMPTY)
async def test_where_nothing_changes_nothing_is_said(stage: Played) -> None:
    stage.fleet.members.discovered("m", (replica(),))
    stage.worker_pool.heard.clear()
    stage.fleet.members.discovered("m", (replica(),))
    stage.fleet.members.refresh("m")
    stage.fleet.members.refresh("z")
    assert stage.worker_pool.heard == []


@acted(EMPTY)
async def test_another_weight_keeps_what_is_known(stage: Played) -> None:
    stage.fleet.members.discovered("m", (replica(),))
    stage.prober.sees(A)
    await stage.settle()
    stage.fleet.members.discovered("m", (replica(weight=3.0),))
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})


@acted(EMPTY)
async def test_another_address_under_the_same_name_is_another_replica(stage: Played) -> None:
    stage.fleet.members.discovered("m", (replica(),))
    stage.prober.sees(A)
    await stage.settle()
    stage.fleet.members.discovered("m", (replica(url=THERE),))
    assert stage.worker_pool.hire(7).states() == {A: "starting"}
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("starting", {"starting"})
    assert {w.urls()[A] for w in stage.worker_pool.workers.values()} == {THERE}


@acted(EMPTY)
async def test_what_was_seen_of_the_old_is_not_told_of_the_new(stage: Played) -> None:
    stage.fleet.members.discovered("m", (replica(),))
    stage.prober.sees(A)
    stage.fleet.members.discovered("m", (replica(url=THERE),))
    await stage.settle()
    assert stage.everywhere(A) == {"starting"}


@pytest.mark.parametrize("health", ["true", "false"])
def test_a_drain_outlives_a_change_of_address(health: str) -> None:
    async def scene(stage: Played) -> None:
        stage.fleet.members.discovered("m", (replica(),))
        stage.prober.sees(A)
        stage.fleet.health.drained.add(A)
        stage.fleet.transition(A, Event.DRAIN, "an operator drains it")
        await stage.settle()
        stage.fleet.members.discovered("m", (replica(url=THERE),))
        await stage.settle()
        stage.prober.sees(A)
        await stage.settle()
        assert (stage.state(A), stage.everywhere(A)) == ("draining", {"draining"})
        assert stage.worker_pool.hire(7).states() == {A: "draining"}

    play(f"models: {{m: {{health: {{enabled: {health}}}}}}}", scene)


@acted(EMPTY)
async def test_more_than_fit_are_refused_and_shown_and_the_last_good_stay(stage: Played) -> None:
    stage.fleet.members.discovered("m", (replica(),))
    stage.prober.sees(A)
    await stage.settle()
    stage.fleet.members.discovered(
        "m", tuple(replica(f"r{n}", f"http://10.0.0.1:{n + 1}") for n in range(MIN_LEDGER_COLUMNS + 1))
    )
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})
    assert "fit in the shared memory ledger" in stage.fleet.members.capacity_problem
    stage.fleet.members.discovered("m", (replica("b", THERE),))
    await stage.settle()
    assert stage.fleet.members.capacity_problem == ""
    assert set(stage.fleet.health.statuses) == {B}


@acted(EMPTY, workers=1)
async def test_what_is_removed_leaves_nothing_behind(stage: Played) -> None:
    """Replicas come and go for months, each under a name of its own."""
    for day in range(50):
        key = ("m", f"pod-{day}")
        stage.fleet.members.discovered("m", (replica(key[1], f"http://10.0.0.1:{day + 1}"),))
        stage.prober.sees(key)
        stage.fleet.worker_notice(ReplicaFailure(*key, True))
        stage.fleet.health.load_reported(key, EngineLoad(running=1.0, waiting=0.0))
        await stage.settle()
    fleet = stage.fleet
    for kept in (
        fleet.health.statuses,
        fleet.health.targets,
        fleet.members.by_key(),
        fleet.members.columns["m"],
    ):
        assert set(kept) <= {("m", "pod-49"), "pod-49"}
    assert len(fleet.events.latest()) <= 1000
