"""The parts without I/O, each for itself."""

from __future__ import annotations

import pytest

from steelyard.control.replicas.context import ReplicaIds, smallest_free
from steelyard.control.replicas.failures import FORGET_AFTER_SECONDS, CrashBackoff, MemoryShortage, StartFailure
from steelyard.control.replicas.lifecycle import TRANSITIONS, PhaseEvent, ReplicaPhase, next_phase
from steelyard.control.replicas.managed_replica import ManagedReplica
from steelyard.core.errors import IllegalTransitionError
from steelyard.core.replica import State
from steelyard.runtimes import Instance
from steelyard.runtimes import InstancePhase as RunPhase

TROUBLE = StartFailure("p1", "ended", "its process ended: exit code 1", ())


def replica(now: float = 0.0, *, adopted: bool = False, age: float = 0.0) -> ManagedReplica:
    instance = Instance("m", "p1", "http://h:1", "", "", RunPhase.RUNNING, age)
    return ManagedReplica(instance, None, 0, now, adopted=adopted)  # type: ignore[arg-type]


def test_nobody_comes_back_from_the_end() -> None:
    assert not TRANSITIONS[ReplicaPhase.GONE]
    assert set(TRANSITIONS[ReplicaPhase.STOPPING].values()) == {ReplicaPhase.GONE}


def test_every_phase_leads_to_the_end() -> None:
    for phase in ReplicaPhase:
        if phase is not ReplicaPhase.GONE:
            assert next_phase(phase, PhaseEvent.ENDED) is ReplicaPhase.GONE


@pytest.mark.parametrize(
    ("phase", "turn"),
    [
        (ReplicaPhase.REQUESTED, PhaseEvent.BECAME_READY),
        (ReplicaPhase.STOPPING, PhaseEvent.UNDRAIN),
        (ReplicaPhase.READY, PhaseEvent.STARTED),
    ],
)
def test_a_move_that_is_not_in_the_table_is_refused(phase: ReplicaPhase, turn: PhaseEvent) -> None:
    with pytest.raises(IllegalTransitionError, match=f"that is {phase.value} cannot take {turn.value}"):
        next_phase(phase, turn)


def test_names_go_on_after_those_that_were_found() -> None:
    ids = ReplicaIds()
    ids.used("m", "p7")
    ids.used("m", "p2")
    ids.used("m", "someone")
    assert ids.next("m", {"p8"}) == "p9"
    assert ids.next("other", ()) == "p1"
    assert ids.was_used("m", "p3")
    assert not ids.was_used("m", "p10")
    assert not ids.was_used("m", "p03")


def test_the_smallest_number_that_is_free() -> None:
    assert smallest_free([]) == 0
    assert smallest_free([0, 1, 3]) == 2
    assert smallest_free([5]) == 0


def test_without_failures_there_is_no_limit() -> None:
    assert CrashBackoff().starts(10, 3, 0, 0.0) == 10


def test_after_one_that_was_good_the_next_may_start_at_once() -> None:
    backoff = CrashBackoff()
    backoff.ended(TROUBLE, 5.0)
    assert backoff.starts(2, 0, 0, 5.0) == 2
    assert backoff.last_failure is TROUBLE
    assert not backoff.looping


def test_one_that_was_good_does_not_end_a_pause() -> None:
    backoff = CrashBackoff()
    backoff.failed(TROUBLE, 0.0, 1.0)
    backoff.ended(TROUBLE._replace(replica="p2"), 1.5)
    assert backoff.starts(2, 0, 0, 1.5) == 0
    assert backoff.last_failure is TROUBLE


def test_one_at_a_time_after_a_failure_and_twice_as_many_when_they_are_ready() -> None:
    backoff = CrashBackoff()
    backoff.failed(TROUBLE, 0.0, 1.0)
    assert backoff.starts(8, 0, 0, 1.9) == 0
    assert backoff.starts(8, 0, 0, 2.0) == 1
    assert backoff.starts(8, 1, 0, 2.0) == 0
    assert backoff.starts(8, 0, 1, 2.0) == 2
    assert backoff.starts(8, 0, 3, 2.0) == 4
    backoff.clear()
    assert backoff.starts(8, 0, 0, 2.0) == 8


def test_a_row_ends_with_a_good_life_after_it() -> None:
    backoff = CrashBackoff()
    backoff.failed(TROUBLE, 0.0, 10.0)
    backoff.left_well(5.0)
    assert backoff.consecutive_failures == 1  # of the time before
    backoff.left_well(11.0)
    assert (backoff.consecutive_failures, backoff.last_failure) == (0, None)


def test_what_was_long_ago_is_forgotten() -> None:
    backoff = CrashBackoff()
    backoff.failed(TROUBLE, 0.0, 10.0)
    backoff.fade(10.0 + FORGET_AFTER_SECONDS - 1.0)
    assert backoff.consecutive_failures == 1
    backoff.fade(10.0 + FORGET_AFTER_SECONDS)
    assert backoff.starts(8, 0, 0, 10.0 + FORGET_AFTER_SECONDS) == 8
    assert backoff.last_failure is None


def test_a_shortage_is_new_once() -> None:
    shortage = MemoryShortage()
    assert shortage.begin("no", 1.0)
    assert not shortage.begin("still no", 2.0)
    assert (shortage.message, shortage.since) == ("still no", 1.0)
    shortage.end()
    assert shortage.begin("no", 3.0)


def test_when_the_ledger_counts_it() -> None:
    one = replica()
    assert not one.is_counted(0.0)
    one.fleet_state_changed(State.UNREACHABLE, 1.0)
    assert not one.is_counted(1.0)
    one.fleet_state_changed(State.LOADING, 2.0)
    assert one.is_counted(2.0)
    one.fleet_state_changed(State.UNREACHABLE, 3.0)
    one.fleet_state_changed(State.UNREACHABLE, 20.0)
    assert one.is_counted(32.9)
    assert not one.is_counted(33.0)


def test_when_it_should_be_ready() -> None:
    one = replica(10.0)
    assert one.ready_in(10.0) is None  # nobody expects it
    one.ready_by = 15.0
    assert one.ready_in(11.0) == 4.0
    one.transition(PhaseEvent.STARTED, 10.0)
    assert one.ready_in(110.0) == pytest.approx(10.0)  # late by a part of what it took
    one.transition(PhaseEvent.BECAME_READY, 110.0)
    assert one.ready_in(110.0) is None
    one.transition(PhaseEvent.BECAME_UNREADY, 120.0)
    assert one.ready_in(120.0) is None


def test_an_adopted_one_is_as_old_as_it_is() -> None:
    one = replica(100.0, adopted=True, age=40.0)
    assert one.began == 60.0
    assert one.phase is ReplicaPhase.STARTING
    assert not one.is_overdue(109.0, 10.0)  # it is looked at since we are here
    assert one.is_overdue(110.0, 10.0)
