"""The parts of the placer that only compute: what was learned, what failed, what is wanted."""

from __future__ import annotations

import pytest

from steelyard.control.placement.load_history import LoadBackoff, LoadError, LoadTimes
from steelyard.control.placement.model_demand import SIGNAL_TTL_SECONDS, DemandSignals, ReportedDemand
from steelyard.link.messages import ReplicaDemand

KEY = ("m", "a")


def test_load_times_are_as_configured_until_they_are_measured() -> None:
    times = LoadTimes()
    assert (times.seconds("m", 10.0), times.is_measured("m")) == (10.0, False)
    times.learn("m", 3.0)
    assert (times.seconds("m", 10.0), times.is_measured("m")) == (3.0, True)


def test_load_times_grow_fast_and_shrink_slowly() -> None:
    times = LoadTimes()
    times.learn("m", 10.0)
    times.learn("m", 20.0)
    assert times.seconds("m", 0.0) == pytest.approx(17.0)
    times.learn("m", 7.0)
    assert times.seconds("m", 0.0) == pytest.approx(15.0)
    times.keep({"n"})
    assert times.seconds("m", 5.0) == 5.0


def test_what_keeps_failing_is_tried_less_and_less() -> None:
    failures = LoadBackoff()
    pauses = []
    now = 0.0
    for _ in range(9):
        failures.failed(KEY, LoadError("no weights"), now)
        assert not failures.may_try(KEY, now)
        pauses.append(failures.all()[KEY].retry_at - now)
        now = failures.all()[KEY].retry_at
        assert failures.may_try(KEY, now)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    known = failures.all()[KEY]
    assert (known.times, known.since, known.reason, known.message) == (9, 0.0, "load_failed", "no weights")
    assert failures.may_try(("m", "b"), now), "other servers are not to blame"
    failures.succeeded(KEY)
    assert failures.all() == {}


def test_failures_of_removed_replicas_are_forgotten() -> None:
    failures = LoadBackoff()
    failures.failed(KEY, LoadError("x"), 0.0)
    failures.keep({("n", "a")})
    assert failures.all() == {}


def test_a_call_of_a_worker_counts_before_any_report() -> None:
    demands = DemandSignals()
    demands.signalled(ReplicaDemand("m", 2, 0.5), 10.0)
    demands.signalled(ReplicaDemand("m", 5, 1.5), 10.5)
    assert demands.current(11.0, {"n": ReportedDemand(rate=0.1)}) == {
        "n": ReportedDemand(rate=0.1),
        "m": ReportedDemand(5, 1.5, 1.0, 0.0),
    }
    assert demands.current(11.0, {"m": ReportedDemand(9, 0.2, 0.1, 0.7)}) == {"m": ReportedDemand(9, 1.5, 1.0, 0.7)}


def test_the_loudest_worker_of_late_is_believed() -> None:
    demands = DemandSignals()
    demands.signalled(ReplicaDemand("m", 9, 3.0), 10.0)
    demands.signalled(ReplicaDemand("m", 2, 0.5), 10.1)
    assert demands.current(10.1, {})["m"].waiting == 9
    demands.signalled(ReplicaDemand("m", 2, 0.5), 10.3)
    assert demands.current(10.3, {})["m"] == ReportedDemand(2, 0.5, pytest.approx(0.3), 0.0), (
        "the others have nothing to call for"
    )


def test_a_call_does_not_count_for_long() -> None:
    demands = DemandSignals()
    demands.signalled(ReplicaDemand("m", 2, 0.5), 10.0)
    assert demands.current(10.1 + SIGNAL_TTL_SECONDS, {}) == {}
    demands.signalled(ReplicaDemand("m", 1, 0.2), 20.0)
    assert demands.current(20.5, {})["m"] == ReportedDemand(1, 0.2, 0.5, 0.0), "nor do calls before a gap"


def test_nobody_waits_for_what_is_there() -> None:
    demands = DemandSignals()
    demands.signalled(ReplicaDemand("m", 2, 0.5), 10.0)
    demands.served("m", 11.0)
    assert demands.current(11.0, {}) == {}
    reported = {"m": ReportedDemand(2, 0.5, 1.0, 0.3)}
    assert demands.current(11.2, reported) == {"m": ReportedDemand(rate=0.3)}, "that was before it was there"
    demands.signalled(ReplicaDemand("m", 7, 2.0), 11.4)
    assert demands.current(11.4, reported)["m"].waiting == 7
    assert demands.current(11.1 + SIGNAL_TTL_SECONDS, reported)["m"].waiting == 7
    assert demands.current(14.0, reported) == reported
