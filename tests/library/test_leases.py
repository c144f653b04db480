"""A request that is never completed does not hold its slot for ever."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from steelyard import BalancerEvent, EventKind, LoadBalancer, MisuseError, OptionError, State

from ..harness.waiting import WAIT_TIMEOUT_SECONDS, wait_until
from .clock import Clock


def balancer(clock: Clock, events: list[BalancerEvent], **more: object) -> LoadBalancer:
    return LoadBalancer(["a"], concurrency=1, lease=60.0, clock=clock, on_event=events.append, **more)  # type: ignore[arg-type]


def test_a_request_never_completed_gives_its_slot_back(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    events: list[BalancerEvent] = []
    lb = balancer(clock, events)
    lb.route_request()
    clock.now += 59.0
    assert lb.load == {"a": 1}
    clock.now += 2.0
    with caplog.at_level(logging.WARNING, "steelyard.library"):
        assert lb.load == {"a": 0}
    assert [(e.kind, e.replica, e.seconds) for e in events] == [(EventKind.LEASE_EXPIRED, "a", 60.0)]
    assert "not completed in 60 s" in caplog.text
    assert lb.stats().leases_expired == 1
    assert lb.states == {"a": State.READY}  # nothing is held against the replica
    lb.complete_request(lb.route_request())


def test_a_late_completion_is_harmless_and_told_once() -> None:
    clock = Clock()
    events: list[BalancerEvent] = []
    lb = balancer(clock, events)
    late = lb.route_request()
    clock.now += 61.0
    current = lb.route_request()
    lb.complete_request(late)
    assert lb.load == {"a": 1}  # the slot of another
    assert [e.kind for e in events] == [EventKind.LEASE_EXPIRED, EventKind.LATE_COMPLETION]
    assert events[1].seconds == 61.0
    with pytest.raises(MisuseError, match="completed before"):
        lb.complete_request(late)
    lb.complete_request(current)
    assert lb.load == {"a": 0}


def test_a_late_completion_by_a_bare_id_is_harmless() -> None:
    clock = Clock()
    lb = balancer(clock, [])
    lb.route_request()
    clock.now += 61.0
    assert lb.load == {"a": 0}
    lb.complete_request("a")
    with pytest.raises(MisuseError, match="completed twice"):
        lb.complete_request("a")


def test_a_block_that_outlives_its_lease_ends_as_usual() -> None:
    clock = Clock()
    events: list[BalancerEvent] = []
    lb = balancer(clock, events)
    with lb.route():
        clock.now += 61.0
        assert lb.load == {"a": 0}
    assert [e.kind for e in events] == [EventKind.LEASE_EXPIRED, EventKind.LATE_COMPLETION]

    def long(_: str) -> str:
        clock.now += 61.0
        assert lb.load == {"a": 0}
        return "an answer"

    assert lb.call(long) == "an answer"
    assert lb.load == {"a": 0}


def test_a_replica_that_is_removed_takes_its_expired_leases_along() -> None:
    clock = Clock()
    events: list[BalancerEvent] = []
    lb = balancer(clock, events)
    late = lb.route_request()
    clock.now += 61.0
    lb.add_replica("b")
    lb.remove_replica("a")
    lb.complete_request(late)
    assert events[-1].kind is EventKind.LATE_COMPLETION
    lb.add_replica("a")
    with pytest.raises(MisuseError, match="completed twice"):
        lb.complete_request("a")


def test_without_a_lease_a_slot_is_held_for_ever() -> None:
    clock = Clock()
    lb = LoadBalancer(["a"], lease=None, clock=clock)
    lb.route_request()
    clock.now += 1e7
    assert lb.load == {"a": 1}


def test_who_waits_gets_the_slot_of_a_forgotten_request() -> None:
    """Nobody calls the balancer meanwhile: the one that waits must wake up for it."""
    lb = LoadBalancer(["a"], concurrency=1, lease=0.1)
    lb.route_request()
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(lb.route_request(wait=WAIT_TIMEOUT_SECONDS)))
    thread.start()
    thread.join(WAIT_TIMEOUT_SECONDS)
    assert got == ["a"]

    async def main() -> str:
        async with lb.route(wait=WAIT_TIMEOUT_SECONDS) as replica:
            return replica

    assert asyncio.run(main()) == "a"
    wait_until(lambda: lb.load == {"a": 0}, "all slots are back")


@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), "1h", True])
def test_a_lease_that_cannot_work_is_named(wrong: object) -> None:
    with pytest.raises(OptionError, match="lease"):
        LoadBalancer(["a"], lease=wrong)  # type: ignore[arg-type]
