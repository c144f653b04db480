from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.errors import SharedMemoryFullError
from steelyard.control.fleet.active_config import LedgerColumns

FLEETS = st.dictionaries(
    st.sampled_from(["m", "n", "o"]), st.lists(st.sampled_from("abcdefgh"), max_size=6, unique=True), max_size=3
)


def columns(assigned: LedgerColumns) -> list[int]:
    return [column for ids in assigned.table.values() for column in ids.values()]


@given(st.lists(FLEETS, max_size=20))
def test_each_has_one_of_its_own_and_keeps_it(fleets: list[dict[str, list[str]]]) -> None:
    assigned = LedgerColumns(18)
    for fleet in fleets:
        before, assigned = assigned, assigned.assign(fleet)
        assert {model: list(ids) for model, ids in assigned.table.items()} == fleet
        assert len(set(columns(assigned))) == len(columns(assigned))
        assert all(0 <= column < 18 for column in columns(assigned))
        for model, ids in assigned.table.items():
            for id, column in ids.items():
                assert before.table.get(model, {}).get(id, column) == column


def test_what_was_given_back_is_used_last() -> None:
    assigned = LedgerColumns(4).assign({"m": ["a", "b"]}).assign({"m": ["b"]})
    assert assigned.assign({"m": ["b", "c"]}).table == {"m": {"b": 1, "c": 2}}
    assert assigned.assign({"m": ["b", "c", "d", "e"]}).table == {"m": {"b": 1, "c": 2, "d": 3, "e": 0}}


def test_too_many_are_refused_and_nothing_changes() -> None:
    assigned = LedgerColumns(2).assign({"m": ["a", "b"]})
    with pytest.raises(SharedMemoryFullError, match="3 replicas are more than the 2 that fit"):
        assigned.assign({"m": ["a"], "n": ["a", "b"]})
    assert assigned.table == {"m": {"a": 0, "b": 1}}
    assert assigned.assign({"m": ["b", "c"]}).table == {"m": {"b": 1, "c": 0}}


def test_one_name_in_two_models_is_two() -> None:
    assert LedgerColumns(9).assign({"m": ["a"], "n": ["a"]}).table == {"m": {"a": 0}, "n": {"a": 1}}
