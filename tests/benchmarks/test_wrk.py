"""What wrk printed is read back as what it measured."""

from __future__ import annotations

from collections import Counter

from benchmarks.load.wrk import SUMMARY_MARK, mean, quantile, read, uncorrected
from hypothesis import given
from hypothesis import strategies as st


def corrected(counts: dict[int, int], interval: int) -> dict[int, int]:
    """As stats_correct in wrk 4.1's stats.c does it."""
    recorded = Counter(counts)
    for value in range(2 * interval, max(counts) + 1):
        count = recorded[value]
        lower = value - interval
        while count and lower > interval:
            recorded[lower] += count
            lower -= interval
    return {value: count for value, count in recorded.items() if count}


@given(
    st.dictionaries(st.integers(1, 2000), st.integers(1, 50), min_size=1, max_size=40),
    st.integers(1, 300),
)
def test_the_correction_is_taken_back_exactly(counts: dict[int, int], interval: int) -> None:
    assert uncorrected(corrected(counts, interval), interval) == counts


def test_one_stall_stays_one_stall() -> None:
    counts = {100: 990, 10_000: 1}
    recorded = corrected(counts, 110)
    assert sum(recorded.values()) > 1070
    assert quantile(recorded, 0.99) > 1000
    assert quantile(uncorrected(recorded, 110), 0.99) == 100


def test_a_report_is_read() -> None:
    output = f"Running 2s test @ http://…\n  2 threads\n{SUMMARY_MARK} 4 1000 1\n100 2\n200 1\n600 1\n"
    load = read(output, connections=2)  # an interval of 500 µs: nothing to take back
    assert (load.requests, load.seconds, load.errors) == (4, 0.001, 1)
    assert (load.mean, load.p50, load.p99) == (250.0, 100.0, 600.0)
    assert load.rate == 4000.0


def test_quantiles_of_counts() -> None:
    counts = {1: 50, 2: 49, 3: 1}
    assert [quantile(counts, share) for share in (0.5, 0.51, 0.99, 1.0)] == [1, 2, 2, 3]
    assert mean({}) == 0.0
    assert quantile({}, 0.5) == 0.0
