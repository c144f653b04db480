"""When to look again; the sources of one model as one list; the table."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import Discovery
from steelyard.control.discovery import kind_of
from steelyard.control.discovery.base import some
from steelyard.control.discovery.pace import LEAST, after_failed, after_good
from steelyard.control.discovery.united import unite
from steelyard.core.errors import OptionError

from .naming import ids, replica, replicas

CHANCE = Random(4)


def about(seconds: float) -> object:
    return pytest.approx(seconds, rel=0.1001)


def test_after_a_good_look() -> None:
    assert after_good(None, 30, CHANCE) == about(30)
    assert after_good(5, 30, CHANCE) == about(5)
    assert after_good(0, 30, CHANCE) == about(1)
    assert after_good(3600, 30, CHANCE) == about(30)
    assert after_good(60, 0.2, CHANCE) == about(0.2)


def test_after_looks_that_failed() -> None:
    waits = [after_failed(times, 30, CHANCE) for times in range(1, 9)]
    assert waits == [about(seconds) for seconds in (1, 2, 4, 8, 16, 30, 30, 30)]
    assert after_failed(10**6, 3600, CHANCE) == about(3600)


@given(st.none() | st.floats(0, 1e9), st.floats(0, 1e9), st.integers(1, 10**9))
def test_never_at_once_and_never_after_the_interval(ttl: float | None, interval: float, times: int) -> None:
    for wait in (after_good(ttl, interval, CHANCE), after_failed(times, interval, CHANCE)):
        assert LEAST <= wait <= max(LEAST, interval * 1.1)


def test_not_all_at_the_same_time() -> None:
    assert len({after_good(None, 30, CHANCE) for _ in range(100)}) == 100


def test_united() -> None:
    both = unite([replicas("a b"), [replica("b", weight=7.0), replica("c")], replicas("")])
    assert ids(both.replicas) == "a b c"
    assert both.replicas[1].weight == 1.0
    assert both.doubles == ((), ("b",), ())
    assert unite([]) == ((), ())


def test_some_of_many() -> None:
    assert some([]) == ""
    assert some(["a", "b", "c"]) == "a; b; c"
    assert some(list("abcde")) == "a; b; c; and 2 more"


@pytest.mark.parametrize(("settings", "named"), [(Discovery(), "none"), (Discovery(file="a", dns="b"), "file and dns")])
def test_an_entry_names_one_source(settings: Discovery, named: str) -> None:
    with pytest.raises(OptionError, match=f"name one of file, dns, not {named}"):
        kind_of(settings)
