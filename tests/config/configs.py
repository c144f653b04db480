"""Configurations of every kind, for property tests: whatever the types allow, sensible or not."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from steelyard.config import Config
from steelyard.documents import Seconds, Share, Size, Tagged, is_tagged
from steelyard.documents.validation import alternatives, is_struct

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
# Some that are right, so that what is behind them is reached too.
NAMES = ["round_robin", "least_work", "openai", "oip", "os:path", "x-tenant", "a", "g0", "*", "-"]
PLACES = ["/a", "/a/", "/b", "10.0.0.0/8", "0.0.0.0/0", "127.0.0.1:8080", ":0", "unix:/a", "http://a:1", "https://b"]
WORDS = st.sampled_from([*NAMES, *PLACES])
QUANTITIES: dict[Any, st.SearchStrategy[Any]] = {
    Seconds: st.builds(Seconds, st.floats(0, 1e9)),
    Size: st.builds(Size, st.integers(0, (1 << 63) - 1)),
    Share: st.builds(Share, st.floats(0, 1)),
    str: st.text(max_size=10) | WORDS,
    bool: st.booleans(),
    type(None): st.none(),
    Any: PLAIN,
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type."""
    return st.one_of([_value(choice, kind) for choice in alternatives(kind)])


def _value(kind: Any, annotated: Any) -> st.SearchStrategy[Any]:
    if kind in QUANTITIES:
        return QUANTITIES[kind]
    if is_struct(kind):
        return structs(kind)
    if is_tagged(kind):
        return st.one_of([structs(kind.struct_of(name)) for name in kind.kinds])
    if get_origin(kind) is tuple:
        return st.lists(values(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) is dict:
        return st.dictionaries(QUANTITIES[str], values(get_args(kind)[1]), max_size=3)
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    assert kind in (int, float), kind
    numbers = st.integers(0, 1024) if kind is int else st.floats(0, 1e9)
    return numbers.filter(lambda number: _fits(number, annotated))


def _fits(number: float, kind: Any) -> bool:
    try:
        msgspec.convert(number, kind)
    except msgspec.ValidationError:
        return False
    return True


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    needed, optional = {}, {}
    for field in msgspec.structs.fields(kind):
        if field.name == "kind" and issubclass(kind, Tagged):
            continue  # the class says it
        (needed if field.required else optional)[field.name] = values(field.type)
    return st.fixed_dictionaries(needed, optional=optional).map(lambda given: kind(**given))


CONFIGS: st.SearchStrategy[Config] = structs(Config)
