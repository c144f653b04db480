"""Starts, stops, and what is told of them."""

from __future__ import annotations

import pytest

from steelyard.control.fleet.observer import ReplicaLoad
from steelyard.control.replicas.controller import ReplicaCounts
from steelyard.core.replica import Event, State
from steelyard.link.messages import StartProgress

from ..driving import run
from .stage import config, staged


def test_as_many_run_as_are_wanted() -> None:
    async def work() -> None:
        async with staged() as stage:
            assert not stage.runtime.orders  # nobody has said how many
            await stage.want(2)
            assert [(order.id, order.number) for order in stage.runtime.orders] == [("p1", 0), ("p2", 1)]
            assert stage.ids() == ["p1", "p2"]
            assert stage.managed["m"][0].url == "http://127.0.0.1:20001"
            assert stage.controller.count("m") == ReplicaCounts(starting=2)
            await stage.want(2)
            assert len(stage.runtime.orders) == 2
            await stage.ready("p1")
            assert stage.controller.count("m") == ReplicaCounts(ready=1, starting=1)
            assert stage.controller.desired("m") == 2

    run(work())


def test_too_many_are_drained_and_stopped_and_the_least_valuable_goes() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(3)
            await stage.ready("p1", "p2", "p3")
            stage.worth["m"] = {"p1": ReplicaLoad(), "p2": ReplicaLoad(slowness=9.0), "p3": ReplicaLoad()}
            stage.busy.add(("m", "p2"))
            await stage.want(2)
            assert stage.state("p2") is State.DRAINING
            assert stage.controller.count("m") == ReplicaCounts(ready=2, terminating=1)
            assert stage.ids() == ["p1", "p2", "p3"]  # it has requests
            stage.busy.clear()
            await stage.turn()
            assert stage.runtime.stops == [("m", "p2")]
            assert stage.ids() == ["p1", "p3"]
            assert stage.controller.summary("m").stops == 1
            assert stage.controller.summary("m").crashes == 0
            assert stage.controller.summary("m").start_failure is None

    run(work())


def test_one_that_is_being_started_goes_before_one_that_serves() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(2)
            await stage.ready("p2")
            await stage.want(1)
            assert stage.ids() == ["p2"]

    run(work())


def test_one_on_its_way_out_comes_back_and_saves_a_start() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(2)
            await stage.ready("p1", "p2")
            stage.busy.update({("m", "p1"), ("m", "p2")})
            await stage.want(0)
            assert stage.controller.count("m") == ReplicaCounts(terminating=2)
            await stage.want(1)
            assert stage.controller.count("m") == ReplicaCounts(starting=1, terminating=1)
            assert len(stage.runtime.orders) == 2
            assert stage.controller.ready_in("m") == 1.0
            (back,) = [id for id, phase in stage.phases().items() if phase == "starting"]
            await stage.ready(back)
            stage.busy.clear()
            await stage.turn()
            assert stage.ids() == [back]
            assert stage.state(back) is State.READY

    run(work())


def test_one_that_is_being_stopped_does_not_come_back() -> None:
    async def work() -> None:
        async with staged(slow_stops=True) as stage:
            await stage.want(1)
            await stage.ready("p1")
            await stage.want(0)
            await stage.want(1)
            assert stage.phases() == {"p1": "terminating", "p2": "starting"}
            stage.runtime.stopped.set()
            await stage.turn()
            assert stage.ids() == ["p2"]

    run(work())


def test_a_start_that_nobody_wants_any_more_is_stopped_when_it_is_answered() -> None:
    async def work() -> None:
        async with staged(slow_starts=True) as stage:
            await stage.want(1)
            await stage.want(0)
            assert stage.controller.count("m") == ReplicaCounts(terminating=1)
            assert not stage.runtime.stops
            stage.runtime.answer.set()
            await stage.turn()
            assert stage.runtime.stops == [("m", "p1")]
            assert not stage.ids()
            assert not stage.runtime.running

    run(work())


def test_an_address_may_become_known_later() -> None:
    async def work() -> None:
        async with staged(no_url=True) as stage:
            await stage.want(1)
            assert not stage.ids()
            stage.runtime.finds_url(("m", "p1"), "http://10.0.0.1:80")
            assert [replica.url for replica in stage.managed["m"]] == ["http://10.0.0.1:80"]

    run(work())


def test_the_cold_start_is_measured_and_told() -> None:
    async def work() -> None:
        async with staged(config(autoscale="cold_start: 5s, max: 9")) as stage:
            assert stage.controller.cold_start("m") == (5.0, False)
            assert stage.controller.ready_in("m") == 0.0
            await stage.want(1)
            assert stage.coming() == [5.0]
            stage.now += 3.0
            assert stage.controller.ready_in("m") == 2.0
            await stage.ready("p1")
            assert stage.controller.cold_start("m") == (3.0, True)
            assert stage.controller.ready_in("m") == 0.0
            stage.now += 60.0
            stage.move(("m", "p1"), Event.LOST, "a moment")
            await stage.ready("p1")
            assert stage.controller.cold_start("m") == (3.0, True)  # it was no start
            await stage.want(2)
            assert stage.coming() == [5.0, 3.0]

    run(work())


def test_who_is_late_is_promised_anew_but_not_with_every_tick() -> None:
    async def work() -> None:
        async with staged(config(autoscale="cold_start: 5s, max: 9")) as stage:
            await stage.want(1)
            for _ in range(400):
                await stage.later(0.25)
            assert stage.controller.ready_in("m") == pytest.approx(100.0)  # never measured: half of it may be over
            assert len(stage.coming()) < 40

    run(work())


def test_names_are_never_used_twice_nor_those_of_others() -> None:
    async def work() -> None:
        made = config().models["m"]
        async with staged() as stage:
            stage.worth["m"] = {"p2": ReplicaLoad()}  # somebody registered as that
            await stage.want(2)
            assert stage.ids() == ["p1", "p3"]
            await stage.want(0)
            await stage.want(1)
            assert stage.ids() == ["p4"]
            assert stage.runtime.orders[-1].number == 0
            assert made.runtime is not None

    run(work())


def test_an_operator_who_drains_one_gets_another_in_its_place() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            await stage.ready("p1")
            stage.move(("m", "p1"), Event.DRAIN, "an operator drains it")
            await stage.turn()
            assert stage.phases() == {"p1": "terminating", "p2": "starting"}
            assert not stage.runtime.stops  # it is left alone
            await stage.later(10_000.0)
            assert ("m", "p1") in stage.runtime.running
            await stage.ready("p2")
            stage.move(("m", "p1"), Event.UNDRAIN, "no longer")
            await stage.ready("p1")
            assert len(stage.runtime.running) == 1  # one too many now
            assert stage.controller.summary("m").crashes == 1  # p2, which took too long to be ready: p1 is none

    run(work())


def test_one_that_leaves_does_not_get_requests_again() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            await stage.ready("p1")
            stage.busy.add(("m", "p1"))
            await stage.want(0)
            stage.move(("m", "p1"), Event.UNDRAIN, "an operator wants it")
            assert stage.state("p1") is State.DRAINING
            stage.busy.clear()

    run(work())


def test_what_they_cost() -> None:
    async def work() -> None:
        more = "devices: {a: {memory: 10GiB, hourly_cost: 3.6}}"
        async with staged(config("devices: [a]", more=more, autoscale="max: 9, hourly_cost: 36")) as stage:
            await stage.want(1)
            stage.now += 10.0
            kept = stage.controller.summary("m")
            assert (kept.replica_seconds, kept.starts) == (10.0, 1)
            assert kept.cost == pytest.approx(0.01)
            stage.reconfigure(config(autoscale="max: 9, hourly_cost: 36", more="devices: {a: {memory: 10GiB}}"))
            stage.now += 10.0
            assert stage.controller.summary("m").cost == pytest.approx(0.01 + 0.1)
            await stage.want(0)
            stage.now += 10.0
            assert stage.controller.summary("m").replica_seconds == 20.0

    run(work())


def test_all_are_stopped_at_once_and_nothing_is_started_after() -> None:
    async def work() -> None:
        async with staged(slow_starts=True) as stage:
            stage.runtime.answer.set()
            await stage.want(2)
            await stage.ready("p1")
            stage.busy.add(("m", "p1"))
            await stage.want(1)
            stage.runtime.answer.clear()
            await stage.want(3)
            assert stage.controller.count("m").starting >= 1
            stage.runtime.answer.set()
            await stage.controller.stop_all()
            assert not stage.runtime.running
            started = len(stage.runtime.orders)
            await stage.want(5)
            await stage.later(100.0)
            assert len(stage.runtime.orders) == started
            assert stage.controller.count("m") == ReplicaCounts()

    run(work())


def test_closed_what_runs_goes_on() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(2)
            await stage.controller.close()
            assert len(stage.runtime.running) == 2
            assert not stage.runtime.stops
            assert stage.runtime.closed

    run(work())


def test_a_drain_that_goes_wrong_keeps_nobody_from_being_stopped(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            await stage.ready("p1")
            stage.busy = None  # type: ignore[assignment]
            await stage.want(0)
            assert not stage.runtime.running
            assert "requests may still run there" in stage.words()

    run(work())


def test_among_equals_the_youngest_goes() -> None:
    async def work() -> None:
        async with staged() as stage:
            for wanted in (1, 2, 3):
                await stage.want(wanted)
                await stage.ready(*stage.ids())
                await stage.later(5.0)
            await stage.want(1)
            assert stage.ids() == ["p1"]

    run(work())


def test_a_start_that_was_never_measured_is_promised_as_a_guess() -> None:
    async def work() -> None:
        async with staged() as stage:
            await stage.want(1)
            await stage.ready("p1")
            await stage.want(2)
            guesses = [message.is_default for message in stage.sent if isinstance(message, StartProgress)]
            assert (guesses[0], guesses[-1]) == (True, False)

    run(work())
