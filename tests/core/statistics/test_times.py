"""Durations under fixed bounds."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.statistics.histogram import DURATION_BOUNDS_SECONDS, DurationCounts, bound_index


@given(st.floats(0.0, 1000.0) | st.sampled_from(DURATION_BOUNDS_SECONDS))
def test_each_falls_below_the_first_bound_that_it_does_not_pass(seconds: float) -> None:
    times = DurationCounts()
    times.add(seconds)
    assert times.counts.index(1) == bound_index(seconds) == bisect_left(DURATION_BOUNDS_SECONDS, seconds)
    assert (sum(times.counts), times.total) == (1, seconds)
