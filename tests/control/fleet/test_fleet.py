"""The fleet: what probes and workers say of replicas, and what all workers hear of it."""

from __future__ import annotations

import asyncio
from typing import Any

from steelyard.config import Config
from steelyard.control.fleet.fleet import Fleet
from steelyard.control.fleet.worker_sync import PROGRESS_BATCH_SECONDS, PROGRESS_TIMEOUT_SECONDS
from steelyard.control.health.prober import BUSY_CHECK_TIMEOUT_SECONDS
from steelyard.core.outliers.ejection_reason import EjectionReason, EjectionRule
from steelyard.core.replica import Event
from steelyard.link.messages import (
    LoadReadings,
    ReplicaEvent,
    ReplicaEvents,
    ReplicaFailure,
    ReplicaReport,
    WorkerReport,
)
from steelyard.protocols.load import EngineLoad

from ..driving import run, until
from ..fakes import (
    EMPTY,
    ONE,
    THERE,
    TWO,
    UNPROBED,
    A,
    B,
    InProcessWorkerPool,
    Played,
    acted,
    in_flight,
    made,
    replica,
    running,
)
from ..health.servers import serving

# ---------------------------------------------------------------------- what probes see


@acted(ONE)
async def test_nobody_gets_anything_before_a_probe_has_seen_it_ready(stage: Played) -> None:
    assert (stage.state(A), stage.everywhere(A)) == ("starting", {"starting"})
    stage.prober.sees(A, Event.LIVE)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("loading", {"loading"})
    stage.prober.sees(A)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})
    stage.prober.sees(A, Event.LOST)
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("unreachable", {"unreachable"})


@acted(UNPROBED)
async def test_where_nothing_is_probed_everybody_is_ready(stage: Played) -> None:
    assert (stage.state(A), stage.everywhere(A)) == ("ready", {"ready"})
    assert stage.prober.targets == {}


@acted(TWO)
async def test_what_happens_in_one_turn_is_one_message_in_its_order(stage: Played) -> None:
    stage.worker_pool.heard.clear()
    stage.prober.sees(A, Event.LIVE)
    stage.prober.sees(B, Event.LOST)
    stage.prober.sees(A)
    assert stage.worker_pool.heard == []
    await stage.settle()
    changes = (ReplicaEvent(*A, "live"), ReplicaEvent(*B, "lost"), ReplicaEvent(*A, "loaded"))
    assert stage.worker_pool.heard == [ReplicaEvents(changes)]


@acted(TWO)
async def test_a_new_worker_hears_how_everybody_stands(stage: Played) -> None:
    stage.prober.sees(A)
    stage.prober.sees(B, Event.LOST)
    await stage.settle()
    assert stage.worker_pool.hire(7).states() == {A: "ready", B: "unreachable"}
    stage.fleet.transition(A, Event.DRAIN, "an operator drains it")
    stage.prober.sees(B, Event.LIVE)
    assert stage.worker_pool.hire(8).states() == {A: "draining", B: "loading"}
    await stage.settle()  # what is told to all now changes nothing there
    assert stage.worker_pool.workers[8].states() == {A: "draining", B: "loading"}


@acted(ONE)
async def test_an_ejection_is_told_to_a_balancer_that_comes_later(stage: Played) -> None:
    stage.prober.sees(A)
    await stage.settle()
    failing = ReplicaReport(*A, "ejected", 0, 9, 5, 0.0, 1.0, consecutive_failures=5, ejection_left=30.0)
    stage.worker_pool.worker_reports = [WorkerReport(0, (), (failing,)), in_flight()]
    stage.fleet.worker_reported(stage.worker_pool.worker_reports[0])
    assert stage.worker_pool.hire(7).states() == {A: "ejected"}
    assert [h.message for h in stage.fleet.events.latest()][-1].startswith("ejected for 30 s")


@acted(ONE, workers=1)
async def test_an_ejection_says_why_when_it_begins_and_how_long_it_was_when_it_ends(stage: Played) -> None:
    stage.prober.sees(A)
    await stage.settle()
    reason = EjectionReason(EjectionRule.CONSECUTIVE_FAILURES, 5, last_failure="answered 500", all_same=True)
    failing = ReplicaReport(
        *A, "ejected", 0, 9, 5, 0.0, 1.0, ejection_left=28.0, ejected_since=2.0, ejection_reason=reason
    )
    well = ReplicaReport(*A, "ready", 0, 9, 5, 0.0, 1.0)
    for seen in (failing, failing, well, well):
        stage.worker_pool.worker_reports = [WorkerReport(0, (), (seen,))]
        stage.fleet.worker_reported(stage.worker_pool.worker_reports[0])
    said = [h.message for h in stage.fleet.events.latest() if "ejected" in h.message]
    assert said == ["ejected for 30 s: 5 in a row answered 500", "no longer ejected, after 2 s"]


@acted(ONE, workers=1)
async def test_an_ejection_right_after_another_is_told_too(stage: Played) -> None:
    """It came back and failed its trial between two reports."""
    stage.prober.sees(A)
    await stage.settle()
    first = ReplicaReport(*A, "ejected", 0, 9, 5, 0.0, 1.0, ejection_left=1.0, ejected_since=29.0)
    trial = EjectionReason(EjectionRule.PROBATION_FAILED, 1, last_failure="answered 500")
    second = ReplicaReport(
        *A, "ejected", 0, 9, 6, 0.0, 1.0, ejection_left=60.0, ejected_since=0.0, ejection_reason=trial
    )
    for seen in (first, second, second):
        stage.worker_pool.worker_reports = [WorkerReport(0, (), (seen,))]
        stage.fleet.worker_reported(stage.worker_pool.worker_reports[0])
    said = [h.message for h in stage.fleet.events.latest() if "ejected" in h.message]
    assert said[1:] == [
        "no longer ejected, after 29 s",
        "ejected for 60 s: the trial request answered 500 while other replicas answer",
    ]


@acted(EMPTY)
async def test_an_ejection_ends_with_the_replica_it_was_for(stage: Played) -> None:
    """Another server under the same name has done nothing."""
    stage.fleet.members.discovered("m", (replica(),))
    stage.prober.sees(A)
    await stage.settle()
    failing = ReplicaReport(*A, "ejected", 0, 9, 5, 0.0, 1.0, consecutive_failures=5, ejection_left=30.0)
    stage.worker_pool.worker_reports = [WorkerReport(0, (), (failing,)), in_flight()]
    stage.fleet.worker_reported(stage.worker_pool.worker_reports[0])
    await stage.settle()
    stage.fleet.members.discovered("m", (replica(url=THERE),))
    await stage.settle()
    stage.prober.sees(A)
    await stage.settle()
    assert stage.everywhere(A) == {"ready"}
    assert stage.worker_pool.hire(7).states() == {A: "ready"}
    stage.fleet.worker_reported(stage.worker_pool.worker_reports[0])  # the last report is of the old one still
    assert stage.worker_pool.hire(8).states() == {A: "ready"}


@acted(ONE, workers=1)
async def test_one_worker_alone_sees_everything_itself(stage: Played) -> None:
    failing = ReplicaReport(*A, "ejected", 0, 9, 5, 0.0, 1.0, consecutive_failures=5, ejection_left=30.0)
    stage.worker_pool.worker_reports = [WorkerReport(0, (), (failing,))]
    stage.worker_pool.heard.clear()
    stage.fleet.worker_reported(stage.worker_pool.worker_reports[0])
    assert stage.worker_pool.heard == []


# ---------------------------------------------------------------------- trouble


@acted(ONE)
async def test_where_nobody_listens_it_is_out_in_all_workers_until_seen_again(stage: Played) -> None:
    stage.prober.sees(A)
    await stage.settle()
    stage.fleet.worker_notice(ReplicaFailure(*A, True))
    await stage.settle()
    assert (stage.state(A), stage.everywhere(A)) == ("unreachable", {"unreachable"})
    assert stage.prober.anew == [A]
    stage.prober.sees(A)
    await stage.settle()
    assert stage.everywhere(A) == {"ready"}


@acted(ONE)
async def test_other_trouble_is_looked_at_and_changes_nothing_by_itself(stage: Played) -> None:
    stage.prober.sees(A)
    await stage.settle()
    stage.fleet.worker_notice(ReplicaFailure(*A, False))
    await stage.settle()
    assert (stage.prober.hurried, stage.everywhere(A)) == ([A], {"ready"})


@acted(ONE)
async def test_trouble_with_nobody_we_know_is_nothing(stage: Played) -> None:
    for refused in (True, False):
        stage.fleet.worker_notice(ReplicaFailure("m", "z", refused))
        stage.fleet.worker_notice(ReplicaFailure("z", "a", refused))
    assert (stage.prober.anew, stage.prober.hurried) == ([], [])


@acted(ONE)
async def test_a_restart_is_loading_until_seen_ready(stage: Played) -> None:
    stage.prober.sees(A)
    await stage.settle()
    stage.fleet.health.restarted(A)
    await stage.settle()
    assert (stage.everywhere(A), stage.prober.anew) == ({"loading"}, [A])


@acted(TWO)
async def test_what_goes_on_there_is_asked_of_workers_once_for_all(stage: Played) -> None:
    stage.worker_pool.worker_reports = [in_flight(A), in_flight(B, overdue=True)]
    assert await asyncio.gather(*(stage.fleet.health.makes_progress(key) for key in (A, B, ("m", "z")))) == [
        True,
        False,
        False,
    ]
    assert stage.worker_pool.report_requests == 1
    assert await stage.fleet.health.makes_progress(A)
    assert stage.worker_pool.report_requests == 2


@acted(ONE)
async def test_of_two_workers_one_that_hears_from_it_is_enough(stage: Played) -> None:
    stage.worker_pool.worker_reports = [in_flight(A, overdue=True), in_flight(A)]
    assert await stage.fleet.health.makes_progress(A)


def test_a_worker_that_does_not_answer_does_not_hide_what_the_others_know() -> None:
    """The prober waits only so long. The workers take their own time to give up on a worker."""
    assert PROGRESS_BATCH_SECONDS + PROGRESS_TIMEOUT_SECONDS < BUSY_CHECK_TIMEOUT_SECONDS


# ---------------------------------------------------------------------- what replicas say of their load


@acted(TWO)
async def test_what_replicas_say_of_their_load_goes_to_all(stage: Played) -> None:
    stage.worker_pool.heard.clear()
    for key, requests in ((A, 3.0), (B, 4.0), (("m", "z"), 5.0), (("z", "a"), 5.0)):
        stage.fleet.health.load_reported(key, EngineLoad(running=requests, waiting=0.0))
    stage.fleet.health.load_reported(A, EngineLoad())
    await stage.settle()
    (message,) = stage.worker_pool.heard
    assert isinstance(message, LoadReadings)
    assert [(r.id, r.requests) for r in message.loads] == [("a", 3.0), ("b", 4.0)]


# ---------------------------------------------------------------------- with real probes


class Alone:
    """A pool without workers."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def broadcast(self, message: Any) -> list[int]:
        self.heard.append(message)
        return []

    def reports(self) -> list[WorkerReport]:
        return []

    async def request_reports(self, seconds: float) -> bool:
        return True


def probed(port: int) -> Config:
    health = "health: {path: /ready, interval: 100ms, loading_interval: 50ms, rise: 1}"
    return made(f"models: {{m: {{{health}, replicas: [{{id: a, url: 'http://127.0.0.1:{port}'}}]}}}}")


def test_a_real_server_loads_is_ready_leaves_and_comes_back() -> None:
    async def work() -> None:
        async with serving(ready=503) as server:
            fleet, worker_pool = Fleet(probed(server.port)), Alone()
            async with running(fleet, worker_pool):
                await until(lambda: fleet.health.statuses[A].state.value == "loading")
                server.answers["/ready"] = 200
                await until(lambda: fleet.health.statuses[A].state.value == "ready")
                fleet.worker_notice(ReplicaFailure(*A, True))
                assert fleet.health.statuses[A].state.value == "unreachable"
                await until(lambda: fleet.health.statuses[A].state.value == "ready")
                fleet.transition(A, Event.DRAIN, "an operator drains it")
                fleet.transition(A, Event.UNDRAIN, "no longer drained")
                assert fleet.health.statuses[A].state.value == "loading"
                await until(lambda: fleet.health.statuses[A].state.value == "ready")
            changes = [
                change
                for message in worker_pool.heard
                if isinstance(message, ReplicaEvents)
                for change in message.events
            ]
            events = [change.event for change in changes]
            assert events[0] == "live"
            assert events[-1] == "loaded"

    run(work())


def test_the_fake_pool_sends_the_initial_state_as_a_supervisor_does() -> None:
    async def work() -> None:
        fleet = Fleet(made(UNPROBED))
        async with running(fleet, Alone()):
            worker_pool = InProcessWorkerPool(fleet, 1)
            assert worker_pool.workers[0].states() == {A: "ready"}

    run(work())
