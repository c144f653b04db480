"""How a replica stands. What a worker is told to catch up must bring it to the same state."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.fleet.health import ReplicaStatus
from steelyard.core.balancer import Balancer
from steelyard.core.errors import IllegalTransitionError
from steelyard.core.replica import Event, State

SEEN = (Event.LIVE, Event.LOADED, Event.LOST, Event.DRAIN, Event.UNDRAIN)  # what a supervisor has to tell


def test_it_begins_unseen() -> None:
    status = ReplicaStatus(5.0)
    assert (status.state, status.since, status.replay_event()) == (State.STARTING, 5.0, None)


def test_a_change_has_its_time_and_its_reason() -> None:
    status = ReplicaStatus(0.0)
    assert status.apply(Event.LIVE, "loads", 1.0)
    assert status.apply(Event.LOADED, "answers", 2.0)
    assert (status.state, status.reason, status.since) == (State.READY, "answers", 2.0)


def test_the_same_again_has_another_reason_at_most() -> None:
    status = ReplicaStatus(0.0)
    status.apply(Event.LIVE, "1 of 3 good probes", 1.0)
    assert not status.apply(Event.LIVE, "2 of 3 good probes", 2.0)
    assert (status.reason, status.since) == ("2 of 3 good probes", 1.0)


def test_whoever_drains_it_is_the_reason_whatever_probes_see() -> None:
    status = ReplicaStatus(0.0)
    status.apply(Event.DRAIN, "an operator drains it", 1.0)
    for event in (Event.LOADED, Event.LIVE, Event.LOST, Event.DRAIN):
        assert not status.apply(event, "something else", 2.0)
    assert (status.state, status.reason, status.since) == (State.DRAINING, "an operator drains it", 1.0)
    assert status.apply(Event.UNDRAIN, "back", 3.0)
    assert status.state is State.LOADING


@pytest.mark.parametrize("event", [Event.LIVE, Event.LOADED, Event.LOST])
def test_an_undrain_of_one_that_does_not_drain_is_nothing(event: Event) -> None:
    status = ReplicaStatus(0.0)
    status.apply(event, "seen", 1.0)
    before = (status.state, status.reason, status.since)
    assert not status.apply(Event.UNDRAIN, "no longer drained", 2.0)
    assert (status.state, status.reason, status.since) == before


@given(st.lists(st.sampled_from(SEEN), max_size=12), st.sampled_from([State.STARTING, State.READY]))
def test_a_worker_that_missed_everything_catches_up(events: list[Event], begins: State) -> None:
    """One that heard each event, and one that hears only what is replayed, end in the same state."""
    status = ReplicaStatus(0.0)
    if begins is State.READY:  # as in a model that is not probed
        status.apply(Event.LOADED, "", 0.0)
    early, late = Balancer(), Balancer()
    for balancer in (early, late):
        balancer.add_model()
        balancer.add_replica("a", state=begins, now=0.0)
    for event in events:
        status.apply(event, "", 0.0)
        report(early, event)
    if (replayed := status.replay_event()) is not None:
        report(late, replayed)
    states = {balancer.pool().find("a").state for balancer in (early, late)}
    assert states == {status.state}


def report(balancer: Balancer, event: Event) -> None:
    """As a worker takes it in."""
    with suppress(IllegalTransitionError):
        balancer.report("a", event, now=0.0)
