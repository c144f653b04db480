"""What a replica says of its load corrects the own counts, and never replaces them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.core.replica import (
    EXTERNAL_LOAD_READINGS,
    MAX_EXTERNAL_LOAD_FACTOR,
    MIN_EXTERNAL_LOAD_CAP,
    ExternalLoad,
    external_load_cap,
)
from steelyard.core.request import Request

from .driving import fleet, pass_time, replica, sent, start, waits


def say(balancer, id, requests, now, lasting=10.0, times=EXTERNAL_LOAD_READINGS):
    """It says so, several times in a row."""
    for _ in range(times):
        balancer.report_engine_load(id, requests, now=now, lasting=lasting)


def test_requests_of_somebody_else_count_as_load():
    balancer = fleet("a", "b", policy="least_connections")
    say(balancer, "a", 5, now=1.0)
    assert replica(balancer, "a").external_load == 5
    assert {sent(balancer.submit(Request(), 1.0)) for _ in range(5)} == {"b"}


def test_what_we_sent_ourselves_is_not_counted_twice():
    balancer = fleet("a", "b", policy="least_connections")
    for _ in range(4):
        start(balancer, 0.0)
    say(balancer, "a", 2, now=1.0)
    assert replica(balancer, "a").external_load == 0
    assert replica(balancer, "a").load == 2


def test_a_replica_that_says_it_has_less_than_we_sent_is_not_believed():
    balancer = fleet("a", policy="least_connections")
    for _ in range(3):
        start(balancer, 0.0)
    say(balancer, "a", 0, now=1.0)
    assert replica(balancer, "a").load == 3


@pytest.mark.parametrize("times", range(EXTERNAL_LOAD_READINGS))
def test_one_reading_alone_may_be_a_request_that_just_ended(times):
    balancer = fleet("a")
    say(balancer, "a", 5, now=1.0, times=times)
    assert replica(balancer, "a").external_load == 0


def test_the_least_of_several_readings_is_what_they_agree_on():
    balancer = fleet("a")
    for number, requests in enumerate((9, 3, 7)):
        balancer.report_engine_load("a", requests, now=1.0 + number, lasting=10.0)
    assert replica(balancer, "a").external_load == 3
    balancer.report_engine_load("a", 8, now=5.0, lasting=10.0)
    assert replica(balancer, "a").external_load == 3
    balancer.report_engine_load("a", 8, now=6.0, lasting=10.0)
    assert replica(balancer, "a").external_load == 7


def test_it_is_forgotten_when_nothing_more_is_heard():
    balancer = fleet("a")
    say(balancer, "a", 5, now=1.0, lasting=3.0)
    pass_time(balancer, 1.0, 3.5)
    assert replica(balancer, "a").external_load == 5
    pass_time(balancer, 3.5, 6.0)
    assert (replica(balancer, "a").external_load, replica(balancer, "a").load) == (0, 0)


def test_readings_from_before_a_silence_do_not_count():
    balancer = fleet("a")
    say(balancer, "a", 5, now=1.0, lasting=1.0, times=EXTERNAL_LOAD_READINGS - 1)
    say(balancer, "a", 5, now=9.0, lasting=1.0, times=1)
    assert replica(balancer, "a").external_load == 0


def test_nonsense_never_shuts_a_replica():
    balancer = fleet("a", concurrency=2)
    say(balancer, "a", 1e12, now=1.0)
    assert replica(balancer, "a").external_load <= MAX_EXTERNAL_LOAD_FACTOR * 2 + MIN_EXTERNAL_LOAD_CAP
    assert sent(balancer.submit(Request(), 1.0)) == "a"
    assert sent(balancer.submit(Request(), 1.0)) == "a"
    assert waits(balancer.submit(Request(), 1.0))  # the limit is for ours, and holds


def test_the_limit_holds_again_when_the_others_are_gone():
    balancer = fleet("a", concurrency=1)
    say(balancer, "a", 6, now=1.0, lasting=2.0)
    pass_time(balancer, 1.0, 5.0)
    assert replica(balancer, "a").limit == 1
    start(balancer, 5.0)
    assert waits(balancer.submit(Request(), 5.0))


def test_other_balancers_and_others_still_are_kept_apart():
    balancer = fleet("a")
    balancer.report_peer_load("a", 3, now=1.0)
    say(balancer, "a", 5, now=1.0)
    found = replica(balancer, "a")
    assert (found.other_load, found.external_load, found.load) == (5, 2, 5)
    balancer.report_peer_load("a", 1, now=1.1)
    assert (found.other_load, found.external_load, found.load) == (3, 2, 3)


@pytest.mark.parametrize("requests", [-1, float("nan"), float("inf")])
def test_impossible_numbers_are_refused(requests):
    balancer = fleet("a")
    with pytest.raises(OptionError, match="replica 'a': cannot have"):
        balancer.report_engine_load("a", requests, now=1.0, lasting=1.0)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.integers(0, 100), st.floats(0, 10)), max_size=20))
def test_never_more_than_the_last_reading_says_nor_less_than_nothing(readings):
    foreign, now = ExternalLoad(), 0.0
    for requests, own, passed in readings:
        now += passed
        foreign.observe(requests, own, 5.0, now)
        assert 0 <= foreign.estimate(now) <= max(0.0, requests - own)


@given(st.lists(st.floats(0, 1e12), min_size=3, max_size=6), st.integers(0, 20))
def test_never_more_than_is_trusted(requests, own):
    balancer = fleet("a", "b", policy="least_connections")
    for _ in range(own):
        start(balancer, 0.0)
    for number in requests:
        balancer.report_engine_load("a", number, now=1.0, lasting=5.0)
    largest = max(replica(balancer, id).in_flight for id in "ab")
    assert (
        0
        <= replica(balancer, "a").external_load
        <= external_load_cap(largest)
        == MAX_EXTERNAL_LOAD_FACTOR * largest + MIN_EXTERNAL_LOAD_CAP
    )
