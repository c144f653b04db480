"""All that does not fit a type: msgspec stops at the first, and does not say which key of a mapping it was."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from .faults import Key, Problem
from .values import decode_value

_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `[^`]*`(?: in `[^`]*`)?)?$", re.DOTALL)
_FIELD = re.compile(r"field `([^`]+)`$|^`([^`]+)` must be")  # msgspec and our checks name a field by its object's path
_NOT_TEXT = re.compile(r"expected `[^`]*\bstr\b[^`]*`, got `(?:int|float|bool|date|datetime|time)`")


def mistakes(data: Any, kind: Any, key: Key = ()) -> Iterator[Problem]:
    """Why `data` cannot be a `kind`. Nothing: it can."""
    for choice in choices(kind):
        if isinstance(data, dict) and is_struct(choice):
            return (yield from _object(data, choice, key))
        if isinstance(data, dict) and get_origin(choice) is dict:
            return (yield from _mapping(data, get_args(choice)[1], key))
        if isinstance(data, list | tuple) and get_origin(choice) is tuple:
            for place, item in enumerate(data):
                yield from mistakes(item, get_args(choice)[0], (*key, place))
            return None
    yield from _as_a_whole(data, kind, key)
    return None


def _object(data: dict[Any, Any], kind: type[msgspec.Struct], key: Key) -> Iterator[Problem]:
    fields = _fields(kind)
    found = [Problem(key, f"object missing required field `{name}`") for name in _required(kind) if name not in data]
    for name, value in data.items():
        if not isinstance(name, str):
            found.append(_no_name(name, key))
        elif name not in fields:
            what = f"object contains unknown field `{name}`{one_of(name, fields, otherwise='it takes')}"
            found.append(Problem(key, what, at=(*key, name)))
        else:
            found += mistakes(value, fields[name], (*key, name))
    yield from found or _as_a_whole(data, kind, key)


def _mapping(data: dict[Any, Any], kind: Any, key: Key) -> Iterator[Problem]:
    for name, value in data.items():
        if isinstance(name, str):
            yield from mistakes(value, kind, (*key, name))
        else:
            yield _no_name(name, key)


def _as_a_whole(data: Any, kind: Any, key: Key) -> Iterator[Problem]:
    try:
        msgspec.convert(data, kind, dec_hook=decode_value)
    except msgspec.ValidationError as problem:
        match = _WHERE.match(str(problem))
        assert match is not None
        what = match["what"][0].lower() + match["what"][1:]
        field = _FIELD.search(match["what"])
        yield Problem(key, what + _hint(what, data, kind), at=(*key, field[1] or field[2]) if field else None)


def _no_name(name: Any, key: Key) -> Problem:
    return Problem(key, f"the key {name!r} is not text: put it in quotes", at=(*key, str(name)))


def _hint(what: str, data: Any, kind: Any) -> str:
    """What would be right, where the message does not say it."""
    if what.startswith("invalid enum value"):
        names = [name for choice in choices(kind) if get_origin(choice) is Literal for name in get_args(choice)]
        return one_of(str(data), names, otherwise="there are")
    if data is None:
        return " (there is nothing behind the key: give it a value or leave it out)"
    return " (put it in quotes)" if _NOT_TEXT.match(what) else ""


def closest(name: str, known: Iterable[str]) -> str:
    """` (did you mean `x`?)`, to put behind a message; nothing if there is none like it."""
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean `{close[0]}`?)" if close else ""


def one_of(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """The closest, or else all of them."""
    names = list(known)
    return closest(name, names) or (f" ({otherwise} {', '.join(names)})" if names else "")


# ---------------------------------------------------------------------- types


def choices(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a type, without what is only said about it."""
    if get_origin(kind) is Annotated:
        return choices(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return tuple(choice for part in get_args(kind) for choice in choices(part))
    return (kind,)


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


@cache
def _required(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
