"""What a model holds: declared, then measured; up at once, down slowly."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.memory.footprint import DECAY_PER_MEASUREMENT, FootprintEstimate


def test_declared_is_where_to_begin() -> None:
    assert (FootprintEstimate(100).value, FootprintEstimate(100).source) == (100, "declared")
    assert (FootprintEstimate(0).value, FootprintEstimate(0).source) == (0, "unknown")


def test_more_than_declared_is_believed_at_once() -> None:
    footprint = FootprintEstimate(100)
    footprint.observe("a", 130, 0.0)
    assert (footprint.value, footprint.source) == (130, "measured")


def test_less_than_declared_is_believed_after_several() -> None:
    footprint = FootprintEstimate(100)
    for second in range(2):
        footprint.observe("a", 60, float(second))
        assert (footprint.value, footprint.source) == (100, "declared")
    footprint.observe("a", 60, 2.0)
    assert (footprint.value, footprint.source) == (60, "measured")


def test_several_in_no_time_are_one() -> None:
    footprint = FootprintEstimate(100)
    for turn in range(50):
        footprint.observe("a", 60, turn / 100)
    assert footprint.value == 100


def test_the_largest_of_the_last_few_which_falls_slowly() -> None:
    footprint = FootprintEstimate(0)
    footprint.observe("a", 1000, 0.0)
    seen = []
    for second in range(1, 60):
        footprint.observe("a", 500, float(second))
        seen.append(footprint.value)
    assert seen[0] == 1000
    assert all(later >= int(DECAY_PER_MEASUREMENT * earlier) - 1 for earlier, later in pairwise(seen))
    assert seen[-1] <= 510


def test_a_small_replica_does_not_hide_a_large_one() -> None:
    footprint = FootprintEstimate(0)
    footprint.observe("large", 900, 0.0)
    for second in range(1, 30):
        footprint.observe("small", 300, float(second))
    assert footprint.value == 900
    footprint.keep({"small"})
    for second in range(30, 80):
        footprint.observe("small", 300, float(second))
    assert footprint.value < 310


def test_no_measurement_is_nothing() -> None:
    footprint = FootprintEstimate(100)
    for second in range(9):
        footprint.observe("a", 0, float(second))
    assert footprint.value == 100


def test_a_load_beside_which_somebody_may_have_come_is_believed_in_part_until_another_shows_it() -> None:
    footprint = FootprintEstimate(100)
    assert [footprint.believed(each) for each in (150, 700, 650, 120, 900)] == [150, 200, 650, 120, 650]
    assert FootprintEstimate(0).believed(700) == 700


def test_what_is_proved_to_be_too_much_goes_but_what_was_declared() -> None:
    footprint = FootprintEstimate(100)
    footprint.lower(10)
    assert (footprint.value, footprint.source) == (100, "declared")
    footprint.observe("a", 190, 0.0)
    footprint.lower(30)
    assert (footprint.value, footprint.source) == (160, "measured")
    footprint.observe("a", 155, 5.0)
    assert footprint.value == 160
    footprint.lower(500)
    assert footprint.value == 100


@given(st.integers(0, 1000), st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 1000)), min_size=1))
def test_never_less_than_the_last_measurement(declared: int, seen: list[tuple[str, int]]) -> None:
    footprint = FootprintEstimate(declared)
    for second, (replica, amount) in enumerate(seen):
        footprint.observe(replica, amount, float(second))
        assert footprint.value >= amount


def test_replicas_are_bounded() -> None:
    footprint = FootprintEstimate(0)
    for number in range(2000):
        footprint.observe(str(number), 100, float(number))
    assert footprint.value == 100
    assert len(footprint.measured) <= 256
