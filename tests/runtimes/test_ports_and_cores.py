"""Which port and which cores a replica gets."""

from __future__ import annotations

import os
import socket
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from steelyard.runtimes import ReplicaStartError
from steelyard.runtimes.process.allocation import PortAllocator, choose_cpus, pinned_to

from .driving import spare_ports

HERE = {(socket.AF_INET, "127.0.0.1")}


def test_gateways_begin_at_different_places() -> None:
    begins = {
        PortAllocator(name).choose(20000, 29999, HERE, ()) for name in ("a", "b", "127.0.0.1:8080", "127.0.0.1:8081")
    }
    assert len(begins) == 4


def test_a_port_is_not_given_again_at_once() -> None:
    ports = PortAllocator("a")
    assert len({ports.choose(20000, 29999, HERE, ()) for _ in range(50)}) == 50


def test_a_port_that_is_taken_is_passed_over() -> None:
    first = spare_ports()
    assert {PortAllocator(name).choose(first, first + 2, HERE, {first, first + 2}) for name in "abcde"} == {first + 1}
    with pytest.raises(ReplicaStartError):
        PortAllocator("a").choose(first, first, HERE, {first})


def test_a_port_on_which_somebody_is_about_to_listen_is_passed_over() -> None:
    """vLLM binds before it loads its model, and listens after."""
    first = spare_ports()
    with socket.socket() as about:
        about.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        about.bind(("127.0.0.1", first))
        assert {PortAllocator(name).choose(first, first + 1, HERE, ()) for name in "abcdefgh"} == {first + 1}


def test_connections_that_have_not_quite_ended_are_no_hindrance_where_there_is_nothing_else() -> None:
    first = spare_ports()
    with socket.create_server(("127.0.0.1", first)) as server:
        caller = socket.create_connection(("127.0.0.1", first))
        called, _ = server.accept()
        called.close()  # first, so that its end is the one that lingers
        caller.close()
    assert PortAllocator("a").choose(first, first, HERE, ()) == first


def test_a_listener_at_another_address_of_this_machine_counts() -> None:
    """A replica may want to listen at all of them."""
    first = spare_ports()
    with socket.create_server(("127.0.0.2", first)):
        assert {PortAllocator(name).choose(first, first + 1, HERE, ()) for name in "abcdefgh"} == {first + 1}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_listener_for_both_kinds_of_addresses_counts() -> None:
    first = spare_ports()
    with socket.create_server(("::", first), family=socket.AF_INET6, dualstack_ipv6=True):
        assert {PortAllocator(name).choose(first, first + 1, HERE, ()) for name in "abcdefgh"} == {first + 1}


# ---------------------------------------------------------------------- cores


def test_cores_that_the_fewest_have() -> None:
    assert choose_cpus(2, {0, 1, 2, 3}, []) == (0, 1)
    assert choose_cpus(2, {0, 1, 2, 3}, [(0, 1)]) == (2, 3)
    assert choose_cpus(2, {0, 1, 2, 3}, [(0, 1), (2, 3), (0, 2)]) == (1, 3)
    assert choose_cpus(3, {4, 6}, [(4,)]) == (4, 6)
    assert choose_cpus(1, {4, 6}, [(0,), (4,)]) == (6,)


@given(some.lists(some.integers(1, 4), max_size=12), some.sets(some.integers(0, 63), min_size=1, max_size=8))
def test_no_core_has_two_more_replicas_than_another(wanted: list[int], allowed: set[int]) -> None:
    taken: list[tuple[int, ...]] = []
    for count in wanted:
        taken.append(choose_cpus(count, allowed, taken))
        assert len(taken[-1]) == min(count, len(allowed))
    held = Counter(dict.fromkeys(allowed, 0))
    held.update(core for cores in taken for core in cores)
    assert set(held) == allowed
    assert max(held.values()) - min(held.values()) <= 1


def test_our_own_cores_come_back_whatever_happens() -> None:
    before = os.sched_getaffinity(0)
    with suppress(ZeroDivisionError), pinned_to({min(before)}):
        assert os.sched_getaffinity(0) == {min(before)}
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == before
    with pinned_to({1023}):  # a core that was taken away
        assert os.sched_getaffinity(0) == before
