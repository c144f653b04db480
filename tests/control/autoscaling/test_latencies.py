"""How long answers took of late."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.autoscaling.latencies import SLICE_SECONDS, WINDOW_SECONDS, RecentLatencies
from steelyard.core.statistics.histogram import BUCKET_COUNT, Histogram
from tests.control.autoscaling.reporting import bucket_of


def test_what_came_is_the_difference_of_what_workers_counted():
    latencies = RecentLatencies()
    assert latencies.update([{5: 1, 9: 2}, {5: 1}], 0.0) == {5: 2, 9: 2}
    assert latencies.update([{5: 1, 9: 2}, {5: 4}], 1.0) == {5: 3}
    assert latencies.update([{5: 1, 9: 2}, {5: 4}], 2.0) == {}


def test_after_a_rebase_only_what_comes_then_counts():
    latencies = RecentLatencies()
    latencies.rebase([{5: 100}])
    assert latencies.update([{5: 101}], 0.0) == {5: 1}
    latencies.rebase([{5: 3}])
    assert latencies.update([{5: 4, 6: 1}], 1.0) == {5: 1, 6: 1}


def test_the_p99_is_of_the_last_half_minute():
    latencies = RecentLatencies()
    assert latencies.p99(0.0) == 0.0
    slow, fast = bucket_of(2.0), bucket_of(0.1)
    latencies.update([{slow: 10}], 0.0)
    assert latencies.p99(1.0) == pytest.approx(2.0, rel=0.005)
    latencies.update([{slow: 10, fast: 500}], 10.0)
    assert latencies.p99(11.0) == pytest.approx(2.0, rel=0.005)
    assert latencies.p99(WINDOW_SECONDS) == pytest.approx(0.1, rel=0.005)
    assert latencies.p99(10.0 + WINDOW_SECONDS) == 0.0


def test_one_in_a_hundred_may_take_longer():
    latencies = RecentLatencies()
    latencies.update([{bucket_of(0.1): 990, bucket_of(9.0): 9}], 0.0)
    assert latencies.p99(0.0) == pytest.approx(0.1, rel=0.005)
    latencies.update([{bucket_of(0.1): 990, bucket_of(9.0): 30}], 0.0)
    assert latencies.p99(0.0) == pytest.approx(9.0, rel=0.005)


@given(st.floats(0.0, 1e9))
def test_a_bucket_is_where_the_histogram_counts_it(seconds):
    histogram = Histogram()
    histogram.add(seconds)
    assert 0 <= bucket_of(seconds) < BUCKET_COUNT
    assert histogram.counts[bucket_of(seconds)] == 1


@given(
    st.lists(
        st.tuples(st.floats(0.0, 5.0), st.integers(0, 1), st.dictionaries(st.integers(0, 5), st.integers(1, 9))),
        max_size=60,
    )
)
def test_however_it_comes_nothing_is_lost_and_what_is_old_goes(steps):
    """Against a list of everything; what is neither surely recent nor surely old may be either."""
    latencies, workers = RecentLatencies(), [Counter(), Counter()]
    everything: list[tuple[float, int, int]] = []
    now = 0.0
    for passed, worker, more in steps:
        now += passed
        workers[worker].update(more)
        assert latencies.update([dict(each) for each in workers], now) == more
        everything += [(now, index, count) for index, count in more.items()]
        latencies.p99(now)
        recent = Counter()
        for when, index, count in everything:
            if when > now - WINDOW_SECONDS + SLICE_SECONDS:
                recent[index] += count
        kept = latencies.recent
        assert all(kept[index] >= count for index, count in recent.items())
        assert all(count > 0 for count in kept.values())
        assert sum(kept.values()) <= sum(count for when, _, count in everything if when > now - WINDOW_SECONDS)
        assert len(latencies.slices) <= WINDOW_SECONDS / SLICE_SECONDS + 1
