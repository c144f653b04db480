"""SLOs over sliding windows: the sums are those of a naive count, and alerts are for those who should hear them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.slo.burn_rate import (
    ALERT_WINDOWS_SECONDS,
    BUCKET_SECONDS,
    HOUR_SECONDS,
    LONGEST_WINDOW_SECONDS,
    MIN_REQUESTS,
    PRUNE_SLACK_BUCKETS,
    Objective,
    SloCounts,
    SloWindows,
    objectives,
    percent_met,
    period_windows,
    slo_counts,
)
from steelyard.core.slo.verdicts import NO_SLO, SLO_VERDICTS, VERDICT_COUNT, VERDICT_INDEX, SloTarget

DAY = 24 * HOUR_SECONDS
IN_TIME = Objective("latency", 99.0)
COUNTS = st.builds(SloCounts, *[st.integers(0, 50)] * 3)


def naive(came, seconds, now, bucket=BUCKET_SECONDS):
    first = now // bucket - round(seconds / bucket)
    total = SloCounts()
    for weighed, when in came:
        if first < when // bucket:
            total = total.plus(weighed)
    return total


@given(
    st.lists(st.tuples(COUNTS, st.floats(0, LONGEST_WINDOW_SECONDS)), max_size=60),
    st.sampled_from(ALERT_WINDOWS_SECONDS),
)
def test_sums_are_those_of_a_naive_count(came, seconds):
    windows = SloWindows()
    for weighed, when in came:
        windows.add(weighed, when)
    now = max((when for _, when in came), default=0.0)
    for later in (now, now + 100.0, now + seconds, now + 2 * LONGEST_WINDOW_SECONDS):
        assert windows.sums(seconds, later) == naive(came, seconds, later)


@given(st.lists(st.tuples(COUNTS, st.floats(0, 90 * DAY)), max_size=60))
def test_a_period_is_known_by_the_hour(came):
    came.sort(key=lambda each: each[1])
    windows = period_windows(30 * DAY)
    for weighed, when in came:
        windows.add(weighed, when)
    now = came[-1][1] if came else 0.0
    assert windows.sums(30 * DAY, now) == naive(came, 30 * DAY, now, HOUR_SECONDS)


def test_windows_are_bounded():
    windows = SloWindows()
    for second in range(0, int(3 * DAY), 10):
        windows.add(SloCounts(met=1), float(second))
    assert windows.sums(LONGEST_WINDOW_SECONDS, 3 * DAY - 10) == SloCounts(met=LONGEST_WINDOW_SECONDS / BUCKET_SECONDS)
    assert len(list(windows.entries())) <= LONGEST_WINDOW_SECONDS / BUCKET_SECONDS + 1 + PRUNE_SLACK_BUCKETS


def test_long_periods_have_no_more_slots_than_short_ones():
    assert period_windows(HOUR_SECONDS).longest == HOUR_SECONDS
    for period in (30 * DAY, 400 * DAY):
        windows = period_windows(period)
        for hour in range(2 * 400 * 24):
            windows.add(SloCounts(met=1), hour * HOUR_SECONDS)
        assert len(list(windows.entries())) <= 721 + PRUNE_SLACK_BUCKETS


def test_entries_are_what_came():
    windows = SloWindows()
    came = [(SloCounts(1, 2, 3), 20.0), (SloCounts(4, 0, 0), 50.0)]
    for each in came:
        windows.add(*each)
    assert list(windows.entries()) == came


def test_who_counts():
    counts = [0] * VERDICT_COUNT
    for index in range(VERDICT_COUNT):
        counts[index] = 10**index
    weighed = slo_counts(counts)
    assert weighed.met == 1
    assert weighed.late == counts[VERDICT_INDEX["late", "replica"]] + counts[VERDICT_INDEX["late", "overload"]]
    assert weighed.lost == sum(
        counts[index]
        for index, (verdict, fault) in enumerate(SLO_VERDICTS)
        if verdict in ("failed", "refused") and fault != "client"
    )


def test_good_and_bad():
    weighed = SloCounts(met=90, late=6, lost=4)
    assert Objective("latency", 99.0).good_and_bad(weighed) == (90, 10)
    assert Objective("availability", 99.0).good_and_bad(weighed) == (96, 4)
    assert Objective("latency", 99.0).burn_rate(weighed) == pytest.approx(10.0)
    assert Objective("availability", 99.0).burn_rate(weighed) == pytest.approx(4.0)
    assert Objective("availability", 95.0).budget_left(weighed) == pytest.approx(0.2)
    assert Objective("availability", 99.0).budget_left(weighed) == pytest.approx(-3.0)


def test_without_traffic_nothing_burns():
    assert IN_TIME.burn_rate(SloCounts()) == 0.0
    assert IN_TIME.budget_left(SloCounts()) == 1.0
    assert percent_met(0, 0) is None
    assert percent_met(3, 1) == 75.0
    assert IN_TIME.alert(SloWindows(), 1e6) == ""


def test_the_strictest_slo_divides_by_nothing():
    assert 1e5 < Objective("availability", 100.0 - 1e-12).burn_rate(SloCounts(lost=5)) < 1e7


def test_what_is_the_slo():
    assert objectives(NO_SLO) == []
    assert objectives(SloTarget(latency=0.2, percentile=95.0)) == [("latency", 95.0)]
    assert objectives(SloTarget(first_byte=0.2)) == [("latency", 99.0)]
    assert objectives(SloTarget(latency=1.0, availability=99.9)) == [("latency", 99.0), ("availability", 99.9)]


def filled(rate, *phases):
    """`rate` requests every ten seconds; each phase has seconds and the share that goes wrong."""
    windows, now = SloWindows(), 0.0
    for seconds, bad in phases:
        for _ in range(int(seconds / 10)):
            windows.add(SloCounts(met=round(rate * (1 - bad)), lost=round(rate * bad)), now)
            now += 10
    return windows, now - 10


@pytest.mark.parametrize(
    ("phases", "alert"),
    [
        ([(6 * HOUR_SECONDS, 0.0)], ""),
        ([(6 * HOUR_SECONDS, 0.01)], ""),  # all that is allowed
        ([(6 * HOUR_SECONDS, 0.05)], ""),
        ([(6 * HOUR_SECONDS, 0.07)], "ticket"),
        ([(6 * HOUR_SECONDS, 0.15)], "page"),
        ([(5 * HOUR_SECONDS, 0.0), (300, 1.0)], ""),  # not for long enough …
        ([(5 * HOUR_SECONDS, 0.0), (600, 1.0)], "page"),
        ([(5 * HOUR_SECONDS, 0.0), (1200, 1.0), (250, 0.0)], "page"),  # … over, but only just
        ([(5.5 * HOUR_SECONDS, 0.0), (1200, 1.0), (300, 0.0)], ""),  # and 5.6 times over all of it
        ([(4 * HOUR_SECONDS, 0.0), (1 * HOUR_SECONDS, 1.0), (600, 0.0)], "ticket"),
        ([(4 * HOUR_SECONDS, 0.0), (1 * HOUR_SECONDS, 1.0), (1800, 0.0)], ""),  # the half hour is clean
    ],
)
def test_alerts(phases, alert):
    windows, now = filled(1000, *phases)
    assert IN_TIME.alert(windows, now) == alert


def test_few_requests_are_no_alert():
    windows = SloWindows()
    windows.add(SloCounts(met=1, lost=2), 0.0)
    assert IN_TIME.alert(windows, 5.0) == ""
    windows.add(SloCounts(met=MIN_REQUESTS), 10.0)  # many, of which too few went wrong
    assert Objective("latency", 99.9).alert(windows, 10.0) == ""
    windows.add(SloCounts(lost=3), 20.0)
    assert IN_TIME.alert(windows, 20.0) == "page"


def test_a_quiet_model_that_fails_all_alerts_in_the_end():
    windows = SloWindows()
    for number in range(MIN_REQUESTS):
        assert IN_TIME.alert(windows, number * 60.0) == ""
        windows.add(SloCounts(lost=1), number * 60.0)
    assert IN_TIME.alert(windows, number * 60.0) == "page"
