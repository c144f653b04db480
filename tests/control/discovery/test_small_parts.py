"""When to look again; the sources of one model as one list; the table."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.discovery.base import list_some
from steelyard.control.discovery.dns.config import DnsDiscovery
from steelyard.control.discovery.file import FileDiscovery
from steelyard.control.discovery.manager import merge_replicas
from steelyard.control.discovery.source_poller import MIN_DELAY_SECONDS, delay_after_failure, delay_after_success
from steelyard.documents import Seconds

from .naming import ids, replica, replicas

CHANCE = Random(4)


def about(seconds: float) -> object:
    return pytest.approx(seconds, rel=0.1001)


def test_after_a_good_look() -> None:
    assert delay_after_success(None, 30, CHANCE) == about(30)
    assert delay_after_success(5, 30, CHANCE) == about(5)
    assert delay_after_success(0, 30, CHANCE) == about(1)
    assert delay_after_success(3600, 30, CHANCE) == about(30)
    assert delay_after_success(60, 0.2, CHANCE) == about(0.2)


def test_after_looks_that_failed() -> None:
    waits = [delay_after_failure(times, 30, CHANCE) for times in range(1, 9)]
    assert waits == [about(seconds) for seconds in (1, 2, 4, 8, 16, 30, 30, 30)]
    assert delay_after_failure(10**6, 3600, CHANCE) == about(3600)


@given(st.none() | st.floats(0, 1e9), st.floats(0, 1e9), st.integers(1, 10**9))
def test_never_at_once_and_never_after_the_interval(ttl: float | None, interval: float, times: int) -> None:
    for wait in (delay_after_success(ttl, interval, CHANCE), delay_after_failure(times, interval, CHANCE)):
        assert MIN_DELAY_SECONDS <= wait <= max(MIN_DELAY_SECONDS, interval * 1.1)


def test_not_all_at_the_same_time() -> None:
    assert len({delay_after_success(None, 30, CHANCE) for _ in range(100)}) == 100


def test_united() -> None:
    both = merge_replicas([replicas("a b"), [replica("b", weight=7.0), replica("c")], replicas("")])
    assert ids(both.replicas) == "a b c"
    assert both.replicas[1].weight == 1.0
    assert both.duplicates == ((), ("b",), ())
    assert merge_replicas([]) == ((), ())


def test_some_of_many() -> None:
    assert list_some([]) == ""
    assert list_some(["a", "b", "c"]) == "a; b; c"
    assert list_some(list("abcde")) == "a; b; c; and 2 more"


@pytest.mark.parametrize("settings", [FileDiscovery(path="a"), DnsDiscovery(name="b", port=80)])
def test_other_times_make_no_other_source(settings: FileDiscovery | DnsDiscovery) -> None:
    same = msgspec.structs.replace(settings, interval=Seconds(1), hold_down=Seconds(2))
    assert same.fingerprint() == settings.fingerprint()
    assert msgspec.structs.replace(settings, scheme="https").fingerprint() != settings.fingerprint()


def test_a_struct_made_in_python_knows_its_kind() -> None:
    assert FileDiscovery(path="a").kind == "file"
    assert DnsDiscovery(name="b").kind == "dns"
