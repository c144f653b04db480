"""Keys of earlier versions: each is an error that names the key it became."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from steelyard.config import Config
from steelyard.core.errors import OptionError
from steelyard.core.plugins import current_options, make_plugin, plugin_options, renamed_options
from steelyard.core.policies import POLICIES, find_policy
from steelyard.core.scalers import SCALERS, find_scaler
from steelyard.documents import type_problems
from steelyard.documents.validation import alternatives, is_struct, renamed_keys
from steelyard.simulate.scenario.schema import Scenario


def structs_in(kind: Any, found: set[type] | None = None) -> set[type]:
    """Every object that a document of this kind may hold."""
    found = set() if found is None else found
    for choice in alternatives(kind):
        if is_struct(choice) and choice not in found:
            found.add(choice)
            for field in msgspec.structs.fields(choice):
                structs_in(field.type, found)
        elif not is_struct(choice):
            for part in get_args(choice):
                structs_in(part, found)
    return found


RENAMED = sorted(
    (struct.__name__, old, new, struct)
    for root in (Config, Scenario)
    for struct in structs_in(root)
    for old, new in renamed_keys(struct).items()
)


def test_the_table_is_not_empty() -> None:
    assert len(RENAMED) >= 60


@pytest.mark.parametrize(("old", "new", "struct"), [pytest.param(*row[1:], id=f"{row[0]}.{row[1]}") for row in RENAMED])
def test_an_old_key_is_explained_with_the_new_one(old: str, new: str, struct: type[msgspec.Struct]) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert new in fields, "the new name is a key"
    assert old not in fields, "the old name is not"
    (problem, *_) = [p for p in type_problems({old: None}, struct) if p.what.startswith("unknown key")]
    assert problem.what == f"unknown key `{old}`: it is called `{new}` now"


def test_a_renamed_section_is_read_by_its_new_name_so_that_its_own_keys_are_explained_too() -> None:
    found = type_problems({"models": {"m": {"ejection": {"slow": 2.0, "longest": "5m"}}}}, Config)
    assert [(".".join(map(str, p.at or ())), p.what) for p in found] == [
        ("models.m.ejection", "unknown key `ejection`: it is called `outlier_detection` now"),
        ("models.m.ejection.slow", "unknown key `slow`: it is called `slow_factor` now"),
        ("models.m.ejection.longest", "unknown key `longest`: it is called `max_ejection_time` now"),
    ]


PLUGINS = [*map(find_policy, POLICIES), *map(find_scaler, SCALERS)]
OPTIONS = [(kind, old, new) for kind in PLUGINS for old, new in renamed_options(kind).items()]


@pytest.mark.parametrize(("kind", "old", "new"), OPTIONS, ids=[f"{kind.__name__}.{old}" for kind, old, _ in OPTIONS])
def test_an_old_option_of_a_policy_or_scaler_is_explained_with_the_new_one(
    kind: type[object], old: str, new: str
) -> None:
    known = plugin_options(kind)
    assert new in known
    assert old not in known
    with pytest.raises(OptionError, match=rf"unknown option '{old}' \(it is called `{new}` now\)"):
        make_plugin("policy", "p", kind, {old: 1})
    assert current_options(kind, {old: 1}) == {new: 1}
