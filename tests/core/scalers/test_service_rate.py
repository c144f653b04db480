"""How much work a replica does in a second, by what was answered."""

import pytest

from steelyard.core.request import INFINITY
from steelyard.core.scalers import ScalingMetrics
from steelyard.core.scalers.service_rate import DEFAULT_MAX_CONCURRENCY, ServiceRate
from steelyard.core.scalers.work import WorkScaler


def answers(pace, seconds, each=1.0, took=1.0, *, start=0, per_second=10, **more):
    """So many answers in each second, each of so much work, that took so long."""
    for now in range(start, start + seconds):
        count = now * per_second
        seen = ScalingMetrics(
            float(now),
            answered=count,
            completed_work=count * each,
            busy_seconds=count * took,
            **{"rate": 5.0, "slots": 8.0} | more,
        )
        pace.add(seen)
    return pace.rate(seen)


def test_a_guess_until_enough_were_answered():
    pace = ServiceRate(300.0)
    assert answers(pace, 2) == 5.0
    assert answers(pace, 10, start=2) == 8.0
    assert answers(ServiceRate(300.0), 2, rate=0.0) == 1.0


def test_slots_times_the_work_that_each_does():
    assert answers(ServiceRate(300.0), 60, each=1.0, took=2.0) == pytest.approx(4.0)


def test_estimates_that_are_all_wrong_by_the_same_cancel_out():
    """Work of 10 s/s: whether it is counted as such or as a tenth, it needs as many replicas."""
    wants = []
    for factor in (1.0, 0.1):
        one = WorkScaler()
        for now in range(200):
            counts = {"offered": now * 10.0 * factor, "completed_work": now * 10.0 * factor, "busy_seconds": now * 10.0}
            want = one.recommend(
                ScalingMetrics(float(now), 5, arrived=now * 10, answered=now * 10, running=11, slots=4.0, **counts)
            )
        wants.append(want.replicas)
    assert wants[0] == pytest.approx(wants[1], abs=1)
    assert wants[0] in (3, 4)


def test_who_came_before_is_left_out():
    pace = ServiceRate(300.0)
    pace.add(ScalingMetrics(0.0, running=30, slots=8.0))
    for answered in range(0, 31, 10):  # these were counted with other estimates
        pace.add(
            ScalingMetrics(
                1.0 + answered / 10,
                answered=answered,
                completed_work=answered * 0.01,
                busy_seconds=answered * 1.0,
                slots=8.0,
            )
        )
    last = 0.3, 30.0
    for now in range(5, 10):
        last = last[0] + 10.0, last[1] + 10.0
        seen = ScalingMetrics(
            float(now), answered=30 + (now - 4) * 10, completed_work=last[0], busy_seconds=last[1], slots=8.0
        )
        pace.add(seen)
    assert pace.rate(seen) == pytest.approx(8.0)


def test_counts_that_begin_anew_change_nothing():
    pace = ServiceRate(300.0)
    answers(pace, 60, took=2.0)
    pace.add(ScalingMetrics(60.0, slots=8.0))
    assert pace.rate(ScalingMetrics(60.0, slots=8.0)) == pytest.approx(4.0)


def test_without_a_limit_those_beside_each_other_count():
    """A replica that shares itself among all, half busy: one at it on average, two while it is busy, half as fast."""
    half = {"each": 0.05, "took": 0.1, "slots": INFINITY, "ready": 1, "running": 1}
    assert answers(ServiceRate(300.0), 60, **half) == pytest.approx(1.0)
    assert answers(ServiceRate(300.0), 60, **half | {"slots_configured": False, "slots": 64.0}) == pytest.approx(1.0)
    assert answers(ServiceRate(300.0), 60, **half | {"slots_configured": False, "slots": 1.0}) == pytest.approx(0.5)


def test_without_a_limit_a_replica_that_hardly_slows_down_can_do_more():
    assert (
        answers(ServiceRate(300.0), 60, each=0.9, slots=INFINITY, ready=1, running=10) == DEFAULT_MAX_CONCURRENCY
    )  # nobody knows
    slowed = {"each": 0.5, "slots": INFINITY, "running": 10}
    assert answers(ServiceRate(300.0), 60, **slowed, ready=1) == pytest.approx(10.0)
    assert answers(ServiceRate(300.0), 10, **slowed, ready=1) == DEFAULT_MAX_CONCURRENCY  # the first to finish are few


def test_without_a_limit_what_was_known_holds_while_it_may_be_true():
    """Three servers of 1 s/s that help each other out slow requests less than one alone would that is as busy."""
    pace = ServiceRate(300.0)
    assert answers(pace, 60, each=0.08, took=0.4, slots=INFINITY, ready=1, running=4) == pytest.approx(1.0)
    for now in range(60, 200):
        count = now * 10
        done, busy = 600 * 0.08 + (count - 600) * 0.2, 600 * 0.4 + (count - 600) * 0.3
        seen = ScalingMetrics(
            float(now), 3, answered=count, completed_work=done, busy_seconds=busy, slots=INFINITY, running=3
        )
        pace.add(seen)
        assert pace.rate(seen) == pytest.approx(1.0, rel=0.3)


def test_requests_at_once_bound_what_estimates_say():
    one = WorkScaler()
    for now in range(100):
        want = one.recommend(
            ScalingMetrics(float(now), 4, 0, 90.0 * now, 10 * now, running=16, rate=4.0, slots=8.0, busy_seconds=0.01)
        )
    assert want.replicas == 3  # 16 at once, and 1.5 × 4 to spare, at 8 each
