"""Decayed means and windowed quantiles."""

from math import exp, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.statistics.latency import (
    BUCKET_COUNT,
    MIN_BUCKET_SECONDS,
    DecayedMean,
    WindowedQuantiles,
    bucket_of,
    bucket_seconds,
    quantile_of,
)

# ---------------------------------------------------------------------- buckets


@given(st.floats(2e-6, 9e5))
def test_a_bucket_tells_a_duration_to_one_percent(seconds):
    assert bucket_seconds(bucket_of(seconds)) == pytest.approx(seconds, rel=0.0101)


@given(st.floats(0.0, 1e9), st.floats(0.0, 1e9))
def test_a_longer_duration_is_never_in_a_lower_bucket(one, other):
    low, high = sorted((one, other))
    assert bucket_of(low) <= bucket_of(high)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-300, MIN_BUCKET_SECONDS])
def test_what_is_too_short_is_in_the_first_bucket(seconds):
    assert bucket_of(seconds) == 0


@pytest.mark.parametrize("seconds", [1e7, 1e300, float("inf")])
def test_what_is_too_long_is_in_the_last_bucket(seconds):
    assert bucket_of(seconds) == BUCKET_COUNT - 1


def test_quantiles_of_counts():
    counts = {bucket_of(1.0): 90, bucket_of(2.0): 9, bucket_of(10.0): 1}
    assert quantile_of(counts, 0.5) == pytest.approx(1.0, rel=0.0101)
    assert quantile_of(counts, 0.9) == pytest.approx(1.0, rel=0.0101)
    assert quantile_of(counts, 0.95) == pytest.approx(2.0, rel=0.0101)
    assert quantile_of(counts, 1.0) == pytest.approx(10.0, rel=0.0101)
    assert quantile_of(counts, 0.0) == pytest.approx(1.0, rel=0.0101)
    assert quantile_of({}, 0.5) == 0.0


# ---------------------------------------------------------------------- decayed mean


def test_a_mean_of_nothing_is_what_the_caller_assumes():
    assert DecayedMean(10.0).value() == 0.0
    assert DecayedMean(10.0).value(3.0) == 3.0


def test_the_first_value_counts_fully():
    mean = DecayedMean(10.0)
    mean.add(5.0, 1000.0)
    assert mean.value() == pytest.approx(5.0)


def test_values_at_one_time_are_averaged_plainly():
    mean = DecayedMean(10.0)
    for value in (1.0, 2.0, 6.0):
        mean.add(value, 3.0)
    assert mean.value() == pytest.approx(3.0)


def test_a_value_weighs_e_to_the_minus_age_over_tau():
    mean = DecayedMean(10.0)
    mean.add(1.0, 0.0)
    mean.add(0.0, 10.0)
    assert mean.value() == pytest.approx(exp(-1) / (exp(-1) + 1))


def test_silence_alone_changes_no_mean():
    mean = DecayedMean(1.0)
    mean.add(4.0, 0.0)
    mean.add(6.0, 0.0)
    assert mean.value() == pytest.approx(5.0)
    mean.add(7.0, 1e6)
    assert mean.value() == pytest.approx(7.0)


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 30.0)), min_size=1, max_size=50))
def test_a_mean_lies_between_the_least_and_the_largest(values):
    mean = DecayedMean(5.0)
    now = 0.0
    for value, gap in values:
        now += gap
        mean.add(value, now)
    low, high = min(v for v, _ in values), max(v for v, _ in values)
    assert low - 1e-9 <= mean.value() <= high + 1e-9


def test_a_steady_stream_is_told_as_its_rate_and_fades_when_it_stops():
    mean = DecayedMean(5.0)
    for i in range(10_000):
        mean.add(2.0, i / 100)
    assert mean.rate(100.0) == pytest.approx(200.0, rel=0.01)
    assert mean.rate(105.0) == pytest.approx(200.0 * exp(-1), rel=0.01)
    assert mean.rate(100.0) == pytest.approx(200.0, rel=0.01)  # reading changes nothing


# ---------------------------------------------------------------------- windowed quantiles


def test_an_empty_window_has_no_quantile():
    window = WindowedQuantiles()
    assert window.quantile(0.99, 5.0) == 0.0
    assert window.count(5.0) == 0


@pytest.mark.parametrize("q", [0.01, 0.5, 0.9, 0.99])
def test_quantiles_are_right_to_one_percent_of_the_value(q):
    rng = Random(4)
    values = sorted(rng.lognormvariate(-2.0, 1.0) for _ in range(5000))
    window = WindowedQuantiles()
    for value in values:
        window.add(value, 1.0)
    exact = values[max(0, round(q * len(values)) - 1)]
    assert window.quantile(q, 1.0) == pytest.approx(exact, rel=0.012)


def test_what_is_older_than_the_window_is_forgotten():
    window = WindowedQuantiles(30.0)
    for i in range(100):
        window.add(1.0, i / 10)
    assert window.quantile(0.5, 10.0) == pytest.approx(1.0, rel=0.0101)
    assert window.quantile(0.5, 41.0) == 0.0
    assert window.count(41.0) == 0


def test_a_change_shows_fully_after_one_window():
    window = WindowedQuantiles(30.0)
    for i in range(1320):
        now = i / 10
        window.add(1.0 if now < 100 else 8.0, now)
    assert window.quantile(0.0, 132.0) == pytest.approx(8.0, rel=0.0101)


def test_the_last_half_window_is_always_counted():
    window = WindowedQuantiles(30.0)
    for i in range(1000):
        window.add(1.0, i / 10)
        assert window.count(i / 10) >= min(i + 1, 150)


@given(st.lists(st.floats(0.01, 40.0), min_size=1, max_size=40), st.floats(0.0, 60.0))
def test_nothing_older_than_the_window_is_counted(gaps, later):
    window = WindowedQuantiles(30.0)
    now, times = 0.0, []
    for gap in gaps:
        now += gap
        times.append(now)
        window.add(1.0, now)
    now += later
    assert window.count(now) <= sum(now - when <= 30.0 for when in times)


def test_reading_changes_nothing_whenever_it_is_done():
    window = WindowedQuantiles(30.0)
    window.add(1.0, 1.0)
    window.add(2.0, 16.0)
    for now in (16.0, 100.0, 20.0, 50.0, 16.0):
        window.quantile(0.5, now)
        window.count(now)
    assert window.count(16.0) == 2


def test_durations_of_any_size_can_be_added():
    window = WindowedQuantiles()
    for seconds in (0.0, 1e-9, 1e9, 1e300):
        window.add(seconds, 1.0)
    assert window.count(1.0) == 4
    assert log(window.quantile(1.0, 1.0)) > log(9e5)
