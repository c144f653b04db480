"""docs/configuration.md says what the code says: every key with default and meaning, every warning, every option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple, get_args, get_origin

import click
import msgspec
import pytest
import yaml

from steelyard.advice import GATEWAY_ADVICE, MODEL_ADVICE
from steelyard.cli import main
from steelyard.config import Config, DiscoveryConfig, RuntimeConfig
from steelyard.documents import Seconds, Share, Size, Tagged, is_tagged
from steelyard.documents.validation import alternatives, is_struct
from steelyard.units import BYTES_PER_UNIT, SECONDS_PER_UNIT, parse_duration, parse_share, parse_size

from .test_docs import NONE, ROOT, blocks, rows, section, text_of

PAGE = "docs/configuration.md"


class Key(NamedTuple):
    name: str
    default: Any
    meaning: str


def keys(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[Key]:
    """Every key. Of an object that is always there, only what is inside."""
    for field in msgspec.structs.fields(kind):
        name = f"{prefix}{field.encode_name}"
        factory = field.default_factory
        default = field.default if factory is msgspec.NODEFAULT else factory()
        if not isinstance(default, msgspec.Struct):
            yield Key(name, default, get_args(field.type)[-1].description)
        for choice in alternatives(field.type):
            yield from _inside(choice, f"{name}.")
            if get_origin(choice) in (tuple, dict):
                yield from _inside(_inner(choice), f"{name}[]." if get_origin(choice) is tuple else f"{name}.NAME.")


def _inside(kind: Any, prefix: str) -> Iterator[Key]:
    if is_struct(kind):
        yield from keys(kind, prefix)
    elif is_tagged(kind):
        yield from _of_any_kind(kind, prefix)


def _of_any_kind(tagged: type[Tagged], prefix: str) -> Iterator[Key]:
    """Of an object that comes in kinds: a key that not every kind has says which have it."""
    common = {field.name for field in msgspec.structs.fields(_base(tagged))}
    found: dict[str, Key] = {}
    users: dict[str, list[str]] = {}
    for kind in tagged.kinds:
        for key in keys(tagged.struct_of(kind), prefix):
            assert found.setdefault(key.name, key) == key, f"{key.name} means two things"
            users.setdefault(key.name, []).append(kind)
    for key in found.values():
        if key.name.removeprefix(prefix) == "kind":
            yield key._replace(default=tagged.default_kind or msgspec.NODEFAULT)
        elif key.name.removeprefix(prefix) in common:
            yield key
        else:
            yield key._replace(meaning=f"{', '.join(f'`{name}`' for name in users[key.name])}: {key.meaning}")


def _base(tagged: type[Tagged]) -> type[msgspec.Struct]:
    """The struct that all kinds derive from."""
    module, _, name = tagged.base_name.rpartition(".")
    found: type[msgspec.Struct] = getattr(import_module(module), name)
    return found


def _inner(kind: Any) -> Any:
    """Of tuple[X, ...] and dict[str, X]."""
    arguments = get_args(kind)
    return arguments[0] if get_origin(kind) is tuple else arguments[1]


KEYS = {key.name: key for key in keys(Config)}
TOLD = {row[0].strip("`"): row for row in rows(section(PAGE, "## Every key")) if row[0] != "key"}


def _parsed(text: str, like: Any) -> Any:
    text = text.strip("`")
    if text == "required":
        return msgspec.NODEFAULT
    if text == NONE:
        return None
    for kind, read in ((Seconds, parse_duration), (Size, parse_size), (Share, parse_share)):
        if isinstance(like, kind):
            return read(text)
    value = yaml.safe_load(text)
    return tuple(value) if isinstance(value, list) else value


def test_there_are_no_keys_but_these() -> None:
    assert set(TOLD) == set(KEYS)


@pytest.mark.parametrize("name", KEYS)
def test_every_key_is_explained_as_editors_explain_it(name: str) -> None:
    _, default, meaning = TOLD[name]
    assert meaning == KEYS[name].meaning
    assert _parsed(default, KEYS[name].default) == KEYS[name].default


def test_every_warning_is_listed_with_its_code() -> None:
    documented = {row[0].strip("`"): row[1] for row in rows(section(PAGE, "### The warnings"))[1:]}
    structs = [kind.struct_of(name) for kind in (RuntimeConfig, DiscoveryConfig) for name in kind.kinds]
    checks = {
        **GATEWAY_ADVICE,
        **MODEL_ADVICE,
        **{code: check for made in structs for code, check in made.advice.items()},
    }
    assert documented == {code: check.__doc__ for code, check in checks.items()}


def test_every_unit_is_listed() -> None:
    documented = section(PAGE, "## Durations, sizes, shares")
    for unit in {*SECONDS_PER_UNIT, *BYTES_PER_UNIT} - {"", "μs"}:
        assert re.search(rf"`{unit}`", documented), unit


def test_the_options_of_check_are_all_explained() -> None:
    command = main.get_command(click.Context(main), "check")
    assert command is not None
    options = {flag for option in command.params for flag in option.opts if flag.startswith("--")}
    documented = {flag for row in rows(section(PAGE, "## Check it")) for flag in re.findall(r"--[\w-]+", row[0])}
    assert documented == options


def test_the_complete_example_is_the_file() -> None:
    (whole,) = [block for block in blocks(ROOT / PAGE) if block.saved_as == "gateway.yaml"]
    assert whole.text == "# gateway.yaml\n" + text_of("examples/gateway.yaml")
