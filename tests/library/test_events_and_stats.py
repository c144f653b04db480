"""What the balancer tells: `on_event` and `stats()`."""

from __future__ import annotations

import logging
from dataclasses import asdict

import pytest

from steelyard import BalancerEvent, EventKind, LoadBalancer, OptionError, State

from .clock import Clock


def fail(lb: LoadBalancer, times: int = 5) -> None:
    for _ in range(times):
        lb.complete_request(lb.route_request(), "error")


def test_ejected_and_returned_are_told() -> None:
    clock = Clock()
    events: list[BalancerEvent] = []
    lb = LoadBalancer(["a"], clock=clock, on_event=events.append)
    fail(lb)
    assert [(e.kind, e.replica) for e in events] == [(EventKind.EJECTED, "a")]
    assert "5 in a row answered with an error" in events[0].message
    assert events[0].seconds == 30.0
    assert lb.stats().replicas["a"].ejected_for == 30.0
    clock.now += 31.0
    assert lb.states == {"a": State.READY}
    assert [e.kind for e in events] == [EventKind.EJECTED, EventKind.RETURNED]
    assert lb.stats().replicas["a"].ejected_for is None


def test_changes_of_the_fleet_are_told() -> None:
    events: list[BalancerEvent] = []
    lb = LoadBalancer(["a"], on_event=events.append)
    lb.add_replica("b")
    lb.drain("b")
    lb.undrain("b")
    lb.remove_replica("b")
    assert [e.kind.value for e in events] == ["added", "draining", "undrained", "removed"]
    assert {e.replica for e in events} == {"b"}
    with pytest.raises(OptionError):
        lb.add_replica("a")
    assert len(events) == 4


def test_a_callback_that_raises_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: BalancerEvent) -> None:
        raise RuntimeError("a bug of the user's")

    lb = LoadBalancer(["a", "b"], on_event=broken)
    with caplog.at_level(logging.ERROR, "steelyard.library"):
        lb.drain("b")
        fail(lb)
    assert "on_event raised on ejected of replica 'a'" in caplog.text
    assert lb.load == {"a": 0, "b": 0}
    lb.complete_request(lb.route_request())


def test_a_callback_may_call_the_balancer() -> None:
    seen: list[object] = []

    def react(event: BalancerEvent) -> None:
        seen.append(event.kind)
        if event.kind is EventKind.EJECTED:
            seen.append(lb.stats().replicas[event.replica].state)
            lb.remove_replica(event.replica)

    lb = LoadBalancer(["a", "b"], on_event=react)
    lb.drain("b")
    fail(lb)
    assert seen == [EventKind.DRAINING, EventKind.EJECTED, State.EJECTED, EventKind.REMOVED]
    assert lb.states == {"b": State.DRAINING}


def test_something_that_cannot_be_called_is_named() -> None:
    with pytest.raises(OptionError, match="on_event"):
        LoadBalancer(["a"], on_event="print")  # type: ignore[arg-type]


def test_stats_tell_each_replica_and_the_sums() -> None:
    clock = Clock()
    lb = LoadBalancer(["a", "b"], clock=clock, concurrency=2, weights={"b": 2.0}, seed=1)
    for _ in range(40):
        target = lb.route_request()
        clock.now += 0.1 if target == "a" else 0.2
        lb.complete_request(target, "error" if clock.now > 104 and target == "a" else "ok")
    lb.route_request()
    stats = lb.stats()
    a, b = stats.replicas["a"], stats.replicas["b"]
    assert (a.sent + b.sent, a.in_flight + b.in_flight, stats.requests, stats.waiting) == (41, 1, 41, 0)
    assert (b.failed, b.weight, b.state) == (0, 2.0, State.READY)
    assert a.failed > 0
    assert b.samples > 0
    assert b.p50 == pytest.approx(0.2, rel=0.02)
    assert b.p99 == pytest.approx(0.2, rel=0.02)
    assert asdict(stats)["replicas"]["b"]["sent"] == b.sent
    clock.now += 100.0
    old = lb.stats().replicas["b"]
    assert (old.samples, old.p50, old.p95, old.p99) == (0, None, None, None)
