"""What was sent to a replica is known as its cache holds it, and never more than that."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.prefixes.index import PrefixIndex

COMMON = (1, 2, 3)


def index_of(replicas: int) -> PrefixIndex:
    index = PrefixIndex()
    assert [index.add_replica() for _ in range(replicas)] == list(range(replicas))
    return index


def test_a_prompt_matches_as_far_as_each_replica_has_read_it() -> None:
    index = index_of(3)
    index.enter(0, (*COMMON, 4, 5), 100)
    index.enter(1, (*COMMON, 6), 100)
    assert index.match((*COMMON, 4, 7)) == {0: 4, 1: 3}
    assert index.match(COMMON) == {0: 3, 1: 3}
    assert index.match((9, 2, 3)) == {}
    assert index.matched_by(0, (*COMMON, 4, 7)) == 4
    assert index.matched_by(2, COMMON) == 0


def test_a_gap_ends_a_match() -> None:
    index = index_of(2)
    index.enter(0, (1, 2, 3, 4), 100)
    index.enter(1, (1, 5, 3, 4), 100)
    assert index.match((1, 2, 3, 4)) == {0: 4, 1: 1}


def test_what_was_not_sent_for_longest_is_forgotten_first_and_the_end_of_a_prompt_before_its_beginning() -> None:
    index = index_of(1)
    index.enter(0, (1, 2, 3), 5)
    index.enter(0, (4, 5), 5)
    index.enter(0, (6,), 5)
    assert index.match((1, 2, 3)) == {0: 2}
    index.enter(0, (1, 2), 5)  # used again
    index.enter(0, (7, 8), 5)
    assert index.match((1, 2)) == {0: 2}
    assert index.match((4, 5)) == {}
    assert index.entries == 5


def test_of_a_prompt_larger_than_the_cache_the_beginning_is_kept() -> None:
    index = index_of(1)
    index.enter(0, tuple(range(20)), 8)
    assert index.match(tuple(range(20))) == {0: 8}
    assert index.entries == 8


def test_a_restart_clears_one_replica_and_removal_frees_its_place() -> None:
    index = index_of(2)
    for slot in (0, 1):
        index.enter(slot, COMMON, 100)
    index.clear(0)
    assert index.match(COMMON) == {1: 3}
    index.remove_replica(1)
    assert (index.match(COMMON), index.entries) == ({}, 0)
    assert index.add_replica() == 1
    assert index.match(COMMON) == {}


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(lambda rng: COMMON * 80, id="all equal"),
        pytest.param(lambda rng: tuple(rng.getrandbits(64) for _ in range(256)), id="all distinct"),
        pytest.param(lambda rng: (7,) * 256, id="one block repeated"),
        pytest.param(lambda rng: tuple(range(1000)), id="more blocks than a prompt may have"),
    ],
)
def test_hostile_prompts_stay_within_bounds(prompt) -> None:
    index, rng = index_of(4), Random(1)
    for _ in range(200):
        blocks = prompt(rng)
        index.enter(rng.randrange(4), blocks, 50)
        assert all(0 < count <= 256 for count in index.match(blocks).values())
        assert index.entries <= 200


def test_all_replicas_together_are_bounded() -> None:
    index, rng = PrefixIndex(max_entries=60), Random(1)
    for count in range(6):
        index.add_replica()
        for slot in range(count + 1):
            index.enter(slot, tuple(rng.getrandbits(64) for _ in range(50)), 1000)
        assert index.entries <= 60


def test_of_many_the_longest_matches_are_found_from_a_place_on() -> None:
    index = index_of(100)
    for slot in range(100):
        index.enter(slot, (1,), 10)
    for slot in (5, 50, 95):
        index.enter(slot, (1, 2), 10)
    index.enter(70, (1, 2, 3), 10)
    assert index.longest_matches((1, 2, 3), 4, 40) == [70, 50, 95, 5]
    assert index.longest_matches((1, 2, 3), 6, 40)[4:] == [40, 41]
    assert index.longest_matches((9,), 4, 0) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 9), max_size=6)), max_size=40), st.integers(1, 12))
def test_matching_at_once_is_matching_one_after_the_other(history, capacity) -> None:
    index = index_of(4)
    for slot, blocks in history:
        index.enter(slot, tuple(blocks), capacity)
        for _, other in history:
            matched = {slot: count for slot in range(4) if (count := index.matched_by(slot, tuple(other)))}
            assert index.match(tuple(other)) == matched
    assert index.entries == sum(index.blocks_of(slot) for slot in range(4)) <= 4 * capacity
