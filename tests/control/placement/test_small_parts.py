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
    setbacks = LoadBackoff()
    pauses = []
    now = 0.0
    for _ in range(9):
        setbacks.failed(KEY, LoadError("no weights"), now)
        assert not setbacks.may_try(KEY, now)
        pauses.append(setbacks.all()[KEY].retry_at - now)
        now = setbacks.all()[KEY].retry_at
        assert setbacks.may_try(KEY, now)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    known = setbacks.all()[KEY]
    assert (known.times, known.since, known.reason, known.why) == (9, 0.0, "load_failed", "no weights")
    assert setbacks.may_try(("m", "b"), now), "other servers are not to blame"
    setbacks.succeeded(KEY)
    assert setbacks.all() == {}


def test_setbacks_of_those_who_are_gone_are_forgotten() -> None:
    setbacks = LoadBackoff()
    setbacks.failed(KEY, LoadError("x"), 0.0)
    setbacks.keep({("n", "a")})
    assert setbacks.all() == {}


def test_a_call_of_a_worker_counts_before_any_report() -> None:
    wishes = DemandSignals()
    wishes.signalled(ReplicaDemand("m", 2, 0.5), 10.0)
    wishes.signalled(ReplicaDemand("m", 5, 1.5), 10.5)
    assert wishes.current(11.0, {"n": ReportedDemand(rate=0.1)}) == {
        "n": ReportedDemand(rate=0.1),
        "m": ReportedDemand(5, 1.5, 1.0, 0.0),
    }
    assert wishes.current(11.0, {"m": ReportedDemand(9, 0.2, 0.1, 0.7)}) == {"m": ReportedDemand(9, 1.5, 1.0, 0.7)}


def test_the_loudest_worker_of_late_is_believed() -> None:
    wishes = DemandSignals()
    wishes.signalled(ReplicaDemand("m", 9, 3.0), 10.0)
    wishes.signalled(ReplicaDemand("m", 2, 0.5), 10.1)
    assert wishes.current(10.1, {})["m"].waiting == 9
    wishes.signalled(ReplicaDemand("m", 2, 0.5), 10.3)
    assert wishes.current(10.3, {})["m"] == ReportedDemand(2, 0.5, pytest.approx(0.3), 0.0), (
        "the others have nothing to call for"
    )


def test_a_call_does_not_count_for_long() -> None:
    wishes = DemandSignals()
    wishes.signalled(ReplicaDemand("m", 2, 0.5), 10.0)
    assert wishes.current(10.1 + SIGNAL_TTL_SECONDS, {}) == {}
    wishes.signalled(ReplicaDemand("m", 1, 0.2), 20.0)
    assert wishes.current(20.5, {})["m"] == ReportedDemand(1, 0.2, 0.5, 0.0), "nor do calls before a gap"


def test_nobody_waits_for_what_is_there() -> None:
    wishes = DemandSignals()
    wishes.signalled(ReplicaDemand("m", 2, 0.5), 10.0)
    wishes.served("m", 11.0)
    assert wishes.current(11.0, {}) == {}
    reported = {"m": ReportedDemand(2, 0.5, 1.0, 0.3)}
    assert wishes.current(11.2, reported) == {"m": ReportedDemand(rate=0.3)}, "that was before it was there"
    wishes.signalled(ReplicaDemand("m", 7, 2.0), 11.4)
    assert wishes.current(11.4, reported)["m"].waiting == 7
    assert wishes.current(11.1 + SIGNAL_TTL_SECONDS, reported)["m"].waiting == 7
    assert wishes.current(14.0, reported) == reported
