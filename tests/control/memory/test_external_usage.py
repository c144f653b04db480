"""Who else uses a device: believed when several looks in a row leave no other choice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.memory.monitored_device import ExternalUsage


def looked(*looks: tuple[int, int, int]) -> int:
    strangers = ExternalUsage()
    for used, surely, possibly in looks:
        strangers.sample(used, surely, possibly)
    return strangers.amount


def test_what_persists_is_somebody_elses() -> None:
    assert looked((50, 40, 40)) == 0
    assert looked((50, 40, 40), (50, 40, 40), (50, 40, 40)) == 10


def test_the_start_of_a_request_is_no_stranger() -> None:
    """It uses memory before the look that counts what was reserved for it."""
    assert looked((40, 40, 40), (60, 40, 40), (60, 40, 70)) == 0


def test_much_reserved_does_not_make_a_stranger_go() -> None:
    at_rest = [(50, 40, 40)] * 3
    assert looked(*at_rest, *[(55, 40, 90)] * 10) == 10


def test_the_end_of_a_request_is_not_the_end_of_a_stranger() -> None:
    """What it used is free before the look, what was reserved for it still counted."""
    assert looked(*[(50, 40, 40)] * 3, (40, 40, 40), (45, 40, 40)) == 10


def test_it_goes_when_it_is_gone() -> None:
    assert looked(*[(50, 40, 40)] * 3, *[(40, 40, 40)] * 3) == 0


def test_it_grows_under_load_too() -> None:
    assert looked(*[(50, 40, 40)] * 3, *[(120, 40, 90)] * 3) == 30


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_never_less_than_nothing_nor_more_than_is_in_use(looks: list[tuple[int, int, int]]) -> None:
    looks = [(used, surely, surely + more) for used, surely, more in looks]
    assert 0 <= looked(*looks) <= max((used for used, _, _ in looks), default=0)
