"""Promises over sliding windows: the sums are those of a naive count, and alerts are for those who should hear them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.slo import INDEX, JUDGEMENTS, KINDS, NOTHING_PROMISED, Promise
from steelyard.core.slo_windows import (
    HOUR,
    LEAST,
    LONGEST,
    SLOT,
    SPARE,
    WINDOWS,
    Objective,
    Weighed,
    Windows,
    objectives,
    over_period,
    percent_kept,
    weigh,
)

DAY = 24 * HOUR
IN_TIME = Objective("latency", 99.0)
COUNTS = st.builds(Weighed, *[st.integers(0, 50)] * 3)


def naive(came, seconds, now, slot=SLOT):
    first = now // slot - round(seconds / slot)
    total = Weighed()
    for weighed, when in came:
        if first < when // slot:
            total = total.plus(weighed)
    return total


@given(st.lists(st.tuples(COUNTS, st.floats(0, LONGEST)), max_size=60), st.sampled_from(WINDOWS))
def test_sums_are_those_of_a_naive_count(came, seconds):
    windows = Windows()
    for weighed, when in came:
        windows.add(weighed, when)
    now = max((when for _, when in came), default=0.0)
    for later in (now, now + 100.0, now + seconds, now + 2 * LONGEST):
        assert windows.sums(seconds, later) == naive(came, seconds, later)


@given(st.lists(st.tuples(COUNTS, st.floats(0, 90 * DAY)), max_size=60))
def test_a_period_is_known_by_the_hour(came):
    came.sort(key=lambda each: each[1])
    windows = over_period(30 * DAY)
    for weighed, when in came:
        windows.add(weighed, when)
    now = came[-1][1] if came else 0.0
    assert windows.sums(30 * DAY, now) == naive(came, 30 * DAY, now, HOUR)


def test_windows_are_bounded():
    windows = Windows()
    for second in range(0, int(3 * DAY), 10):
        windows.add(Weighed(met=1), float(second))
    assert windows.sums(LONGEST, 3 * DAY - 10) == Weighed(met=LONGEST / SLOT)
    assert len(list(windows.entries())) <= LONGEST / SLOT + 1 + SPARE


def test_long_periods_have_no_more_slots_than_short_ones():
    assert over_period(HOUR).longest == HOUR
    for period in (30 * DAY, 400 * DAY):
        windows = over_period(period)
        for hour in range(2 * 400 * 24):
            windows.add(Weighed(met=1), hour * HOUR)
        assert len(list(windows.entries())) <= 721 + SPARE


def test_entries_are_what_came():
    windows = Windows()
    came = [(Weighed(1, 2, 3), 20.0), (Weighed(4, 0, 0), 50.0)]
    for each in came:
        windows.add(*each)
    assert list(windows.entries()) == came


def test_who_counts():
    counts = [0] * KINDS
    for index in range(KINDS):
        counts[index] = 10**index
    weighed = weigh(counts)
    assert weighed.met == 1
    assert weighed.late == counts[INDEX["late", "replica"]] + counts[INDEX["late", "overload"]]
    assert weighed.lost == sum(
        counts[index]
        for index, (verdict, fault) in enumerate(JUDGEMENTS)
        if verdict in ("failed", "refused") and fault != "client"
    )


def test_good_and_bad():
    weighed = Weighed(met=90, late=6, lost=4)
    assert Objective("latency", 99.0).parts(weighed) == (90, 10)
    assert Objective("availability", 99.0).parts(weighed) == (96, 4)
    assert Objective("latency", 99.0).burn(weighed) == pytest.approx(10.0)
    assert Objective("availability", 99.0).burn(weighed) == pytest.approx(4.0)
    assert Objective("availability", 95.0).budget_left(weighed) == pytest.approx(0.2)
    assert Objective("availability", 99.0).budget_left(weighed) == pytest.approx(-3.0)


def test_without_traffic_nothing_burns():
    assert IN_TIME.burn(Weighed()) == 0.0
    assert IN_TIME.budget_left(Weighed()) == 1.0
    assert percent_kept(0, 0) is None
    assert percent_kept(3, 1) == 75.0
    assert IN_TIME.alert(Windows(), 1e6) == ""


def test_the_strictest_promise_divides_by_nothing():
    assert 1e5 < Objective("availability", 100.0 - 1e-12).burn(Weighed(lost=5)) < 1e7


def test_what_is_promised():
    assert objectives(NOTHING_PROMISED) == []
    assert objectives(Promise(latency=0.2, percentile=95.0)) == [("latency", 95.0)]
    assert objectives(Promise(first_byte=0.2)) == [("latency", 99.0)]
    assert objectives(Promise(latency=1.0, availability=99.9)) == [("latency", 99.0), ("availability", 99.9)]


def filled(rate, *phases):
    """`rate` requests every ten seconds; each phase has seconds and the share that goes wrong."""
    windows, now = Windows(), 0.0
    for seconds, bad in phases:
        for _ in range(int(seconds / 10)):
            windows.add(Weighed(met=round(rate * (1 - bad)), lost=round(rate * bad)), now)
            now += 10
    return windows, now - 10


@pytest.mark.parametrize(
    ("phases", "alert"),
    [
        ([(6 * HOUR, 0.0)], ""),
        ([(6 * HOUR, 0.01)], ""),  # all that is allowed
        ([(6 * HOUR, 0.05)], ""),
        ([(6 * HOUR, 0.07)], "ticket"),
        ([(6 * HOUR, 0.15)], "page"),
        ([(5 * HOUR, 0.0), (300, 1.0)], ""),  # not for long enough …
        ([(5 * HOUR, 0.0), (600, 1.0)], "page"),
        ([(5 * HOUR, 0.0), (1200, 1.0), (250, 0.0)], "page"),  # … over, but only just
        ([(5.5 * HOUR, 0.0), (1200, 1.0), (300, 0.0)], ""),  # and 5.6 times over all of it
        ([(4 * HOUR, 0.0), (1 * HOUR, 1.0), (600, 0.0)], "ticket"),
        ([(4 * HOUR, 0.0), (1 * HOUR, 1.0), (1800, 0.0)], ""),  # the half hour is clean
    ],
)
def test_alerts(phases, alert):
    windows, now = filled(1000, *phases)
    assert IN_TIME.alert(windows, now) == alert


def test_few_requests_are_no_alert():
    windows = Windows()
    windows.add(Weighed(met=1, lost=2), 0.0)
    assert IN_TIME.alert(windows, 5.0) == ""
    windows.add(Weighed(met=LEAST), 10.0)  # many, of which too few went wrong
    assert Objective("latency", 99.9).alert(windows, 10.0) == ""
    windows.add(Weighed(lost=3), 20.0)
    assert IN_TIME.alert(windows, 20.0) == "page"


def test_a_quiet_model_that_fails_all_alerts_in_the_end():
    windows = Windows()
    for number in range(LEAST):
        assert IN_TIME.alert(windows, number * 60.0) == ""
        windows.add(Weighed(lost=1), number * 60.0)
    assert IN_TIME.alert(windows, number * 60.0) == "page"
