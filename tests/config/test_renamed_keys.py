"""Keys of earlier versions: each is an error that names the key it became."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from steelyard.config import Config, load_config
from steelyard.core.errors import OptionError
from steelyard.core.plugins import current_options, make_plugin, plugin_options, renamed_options
from steelyard.core.policies import POLICIES, find_policy
from steelyard.core.scalers import SCALERS, find_scaler
from steelyard.documents import DocumentError, type_problems
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
    assert problem.what == f"unknown key `{old}`: renamed to `{new}`"


def test_a_renamed_section_is_read_by_its_new_name_so_that_its_own_keys_are_explained_too() -> None:
    found = type_problems({"models": {"m": {"ejection": {"slow": 2.0, "longest": "5m"}}}}, Config)
    assert [(".".join(map(str, p.at or ())), p.what) for p in found] == [
        ("models.m.ejection", "unknown key `ejection`: renamed to `outlier_detection`"),
        ("models.m.ejection.slow", "unknown key `slow`: renamed to `slow_factor`"),
        ("models.m.ejection.longest", "unknown key `longest`: renamed to `max_ejection_time`"),
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
    with pytest.raises(OptionError, match=rf"unknown option '{old}' \(renamed to `{new}`\)"):
        make_plugin("policy", "p", kind, {old: 1})
    assert current_options(kind, {old: 1}) == {new: 1}


NAMED_OPTIONS = [
    (what, name, old, new)
    for what, table, find in (("policy", POLICIES, find_policy), ("scaler", SCALERS, find_scaler))
    for name in table
    for old, new in renamed_options(find(name)).items()
]


@pytest.mark.parametrize(("what", "name", "old", "new"), NAMED_OPTIONS)
def test_so_it_is_in_a_file(what: str, name: str, old: str, new: str, tmp_path: Path) -> None:
    chosen = {what: name, f"{what}_options": {old: 1}}
    model = chosen if what == "policy" else {"autoscale": {"max": 2, **chosen}, "runtime": {"command": ["x", "{port}"]}}
    (tmp_path / "s.yaml").write_bytes(msgspec.yaml.encode({"models": {"m": model}}))
    with pytest.raises(DocumentError, match=f"{what}_options.{old}: {name} has no option '{old}': renamed to `{new}`$"):
        load_config(tmp_path / "s.yaml")


def test_an_old_value_is_explained_with_the_new_one() -> None:
    def problems(value: str) -> list[str]:
        return [p.what for p in type_problems({"models": {"m": {"placement": {"load_api": value}}}}, Config)]

    assert problems("kit") == ["no such value: 'kit': renamed to `agent`"]
    assert problems("x") == ["no such value: 'x' (there are repository, agent)"]
