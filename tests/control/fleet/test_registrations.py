"""The fleet: replicas that register, renew, and do not."""

from __future__ import annotations

import pytest

from steelyard.core.replica import Event
from steelyard.link.messages import MemberUpdate

from ..fakes import EMPTY, HERE, THERE, A, B, Played, acted, in_flight, made, play, replica


def announce(stage: Played, id: str = "a", url: str = HERE, seconds: float = 5.0, instance: str = "first") -> None:
    news = stage.fleet.registrations.leases.announce("m", replica(id, url), seconds, instance, stage.fleet.now())
    stage.fleet.registrations.registered(("m", id), news)


@acted(EMPTY)
async def test_who_registers_is_a_replica_until_the_lease_runs_out(stage: Played) -> None:
    announce(stage)
    stage.prober.sees(A)
    await stage.settle()
    assert stage.everywhere(A) == {"ready"}
    stage.pass_time(4.0)
    announce(stage)
    stage.pass_time(4.0)
    assert stage.state(A) == "ready"
    stage.pass_time(1.5)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("draining", {"draining"})
    stage.pass_time(3.0)
    assert stage.fleet.members.by_key() == {}
    assert (stage.fleet.health.statuses, len(stage.fleet.registrations.leases)) == ({}, 0)
    assert [w.states() for w in stage.worker_pool.workers.values()] == [{}, {}]


@acted(EMPTY)
async def test_it_is_not_forgotten_while_something_runs_there(stage: Played) -> None:
    announce(stage)
    stage.prober.sees(A)
    stage.worker_pool.worker_reports = [in_flight(A)]
    stage.pass_time(60.0)
    assert stage.state(A) == "draining"
    stage.worker_pool.worker_reports = [in_flight(B)]
    stage.pass_time(0.5)
    assert stage.fleet.members.by_key() == {}


@acted(EMPTY)
async def test_who_registers_again_in_time_is_back_when_seen_ready(stage: Played) -> None:
    announce(stage)
    stage.prober.sees(A)
    stage.pass_time(5.5)
    assert stage.state(A) == "draining"
    announce(stage)
    await stage.settle()
    assert (stage.everywhere(A), stage.prober.anew) == ({"loading"}, [A])
    stage.prober.sees(A)
    await stage.settle()
    assert stage.everywhere(A) == {"ready"}
    stage.pass_time(4.0)
    assert stage.state(A) == "ready"


@acted(EMPTY)
async def test_who_is_forgotten_and_back_in_the_same_turn_is_back(stage: Played) -> None:
    announce(stage)
    stage.prober.sees(A)
    stage.pass_time(5.5)
    await stage.settle()
    stage.fleet.members.discovered("m", (replica("b", THERE),))  # later changes wait, to be one change
    stage.pass_time(3.0)
    assert len(stage.fleet.registrations.leases) == 0
    announce(stage)
    await stage.settle()
    assert stage.everywhere(A) <= {"starting", "loading"}
    stage.prober.sees(A)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})


@acted(EMPTY)
async def test_who_is_forgotten_and_found_in_the_same_turn_is_not_kept_out(stage: Played) -> None:
    announce(stage)
    stage.prober.sees(A)
    stage.pass_time(5.5)
    await stage.settle()
    stage.fleet.members.discovered("m", (replica("b", THERE),))  # later changes wait, to be one change
    stage.pass_time(3.0)
    assert len(stage.fleet.registrations.leases) == 0
    stage.fleet.members.discovered("m", (replica("b", THERE), replica()))
    await stage.settle()
    stage.pass_time(1.0)
    stage.prober.sees(A)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})


@acted(EMPTY)
async def test_another_instance_is_a_restart(stage: Played) -> None:
    announce(stage)
    stage.prober.sees(A)
    announce(stage, instance="second")
    await stage.settle()
    assert (stage.everywhere(A), stage.prober.anew) == ({"loading"}, [A])


@acted(EMPTY)
async def test_another_instance_elsewhere_after_the_first_left_begins_anew(stage: Played) -> None:
    announce(stage)
    stage.prober.sees(A)
    stage.fleet.registrations.leases.withdraw("m", "a", "first")
    stage.fleet.registrations.drain(A, "it deregistered")
    announce(stage, url=THERE, instance="second")
    await stage.settle()
    assert stage.everywhere(A) <= {"starting", "loading"}
    stage.prober.sees(A)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})
    stage.pass_time(4.0)
    assert stage.state(A) == "ready"


@acted(EMPTY)
async def test_renewals_say_nothing_to_anybody(stage: Played) -> None:
    announce(stage)
    await stage.settle()
    stage.worker_pool.heard.clear()
    for _ in range(10):
        announce(stage)
    await stage.settle()
    assert stage.worker_pool.heard == []


@acted(EMPTY)
async def test_an_operator_s_drain_outlives_a_renewal_and_a_return(stage: Played) -> None:
    announce(stage)
    stage.prober.sees(A)
    stage.fleet.health.drained.add(A)
    stage.fleet.transition(A, Event.DRAIN, "an operator drains it")
    announce(stage, instance="second")
    stage.pass_time(5.5)
    announce(stage, instance="second")
    stage.prober.sees(A)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("draining", {"draining"})


@acted(EMPTY)
async def test_an_operator_s_drain_outlives_a_restart_that_takes_longer_than_the_lease(stage: Played) -> None:
    """docs/admin.md: a drain lasts until `undrain`."""
    announce(stage)
    stage.prober.sees(A)
    stage.fleet.health.drained.add(A)
    stage.fleet.transition(A, Event.DRAIN, "an operator drains it")
    stage.pass_time(30.0)
    assert stage.fleet.members.by_key() == {}
    announce(stage, instance="second")
    stage.prober.sees(A)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("draining", {"draining"})


@pytest.mark.parametrize("leaves", [True, False])
def test_a_lease_that_ends_takes_nobody_out_whom_another_source_names(leaves: bool) -> None:
    """Registered first, then found by discovery under the same name, which is believed before: it needs no lease."""

    async def scene(stage: Played) -> None:
        announce(stage)
        stage.prober.sees(A)
        stage.fleet.members.discovered("m", (replica(),))
        if leaves:
            stage.fleet.registrations.leases.withdraw("m", "a", "first")
            stage.fleet.registrations.drain(A, "it deregistered")
        stage.pass_time(30.0)
        stage.prober.sees(A)
        await stage.settle()
        assert len(stage.fleet.registrations.leases) == 0
        assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})

    play(EMPTY, scene)


@acted(EMPTY)
async def test_a_model_that_comes_back_has_its_registered_replicas_at_their_next_renewal(stage: Played) -> None:
    announce(stage)
    assert await stage.fleet.configure(made("models: {n: {}}")) == ""
    assert await stage.fleet.configure(made(EMPTY)) == ""
    announce(stage)
    await stage.settle()
    stage.prober.sees(A)
    await stage.settle()
    assert stage.everywhere(A) == {"ready"}


@acted(EMPTY)
async def test_leases_of_a_model_that_is_gone_are_forgotten(stage: Played) -> None:
    announce(stage)
    assert await stage.fleet.configure(made("models: {n: {}}")) == ""
    stage.pass_time(30.0)
    assert (len(stage.fleet.registrations.leases), stage.fleet.health.statuses) == (0, {})


@acted(EMPTY)
async def test_many_leases_that_end_at_once_are_one_change(stage: Played) -> None:
    """Each change costs a look at everybody: one by one, a thousand would hold up the supervisor for seconds."""
    for n in range(20):
        announce(stage, f"r{n}", f"http://10.0.0.1:{n + 1}")
    await stage.settle()
    stage.pass_time(6.0)
    assert len(stage.fleet.members.by_key()) == 20
    stage.worker_pool.heard.clear()
    stage.pass_time(3.0)
    await stage.settle()
    assert stage.fleet.members.by_key() == {}
    assert [m.removed for m in stage.worker_pool.heard if isinstance(m, MemberUpdate)] == [
        tuple(f"r{n}" for n in range(20))
    ]


@acted(EMPTY)
async def test_a_supervisor_that_stood_still_blames_nobody(stage: Played) -> None:
    """Stopped, or on a machine that slept: nobody could renew."""
    announce(stage)
    stage.prober.sees(A)
    stage.pass_time(1.0)
    stage.clock.ahead += 600.0
    stage.fleet.tick()
    assert stage.state(A) == "ready"
    announce(stage)
    stage.pass_time(4.0)
    assert stage.state(A) == "ready"
    stage.pass_time(2.0)
    assert stage.state(A) == "draining"
