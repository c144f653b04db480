"""All that does not fit a type, and what is left without it.

msgspec stops at the first mistake and does not say which key of a mapping it was. This goes on with what is left: a
value that cannot be read is left out (its default holds), an object that lacks a key is left out as a whole, and a
mistyped key counts as the one that was surely meant.
"""

from __future__ import annotations

import re
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from ..core.errors import OptionError
from .problems import MAX_DIAGNOSTICS, Key, Problem
from .quantities import UNSET, decode_value
from .tagged import Tagged, is_tagged
from .wording import did_you_mean_or_list, is_unquoted, likely_match, readable_type_error

UNUSABLE: Any = object()  # what is left of a value that cannot be used
_MSGSPEC_MESSAGE = re.compile(r"^(?P<what>.*?)(?: - at `[^`]*`(?: in `[^`]*`)?)?$", re.DOTALL)
_FIELD = re.compile(r"^`([^`]+)` must be")  # of our own checks


def type_problems(data: Any, kind: Any) -> list[Problem]:
    return PartialDocument(data, kind).problems


class PartialDocument:
    """`problems` of a document, and the `data` that is left without them: UNUSABLE, or a `kind` for certain.

    `without`: keys to leave out too. `changed_keys`: keys of the document whose values were left out or changed.
    """

    def __init__(self, data: Any, kind: Any, without: frozenset[Key] = frozenset()) -> None:
        self.problems: list[Problem] = []
        self.changed_keys: set[Key] = set()
        self._unknown: set[Key] = set()
        self._without = without
        self._steps: dict[Key, str | int] = {}  # key in what is left → its last step in the document
        self.data = self._value(data, kind, (), ())

    def original_key(self, key: Key) -> Key:
        """A key of what is left, as the document has it."""
        return tuple(self._steps.get(key[: end + 1], step) for end, step in enumerate(key))

    def is_affected(self, key: Key) -> bool:
        """Advice about that key may only hold because something was left out."""
        above = any(key[:end] in self.changed_keys for end in range(len(key) + 1))
        return above or any(wrong[:-1] == key for wrong in self.changed_keys | self._unknown if wrong)

    def _value(self, data: Any, kind: Any, key: Key, left: Key) -> Any:
        """`left`: the key in what is left."""
        if key in self._without or data is UNSET:
            return self._lost(key)
        for choice in alternatives(kind):
            if isinstance(data, str) and (short := shorthand(choice)) and str not in alternatives(kind):
                return self._object({short: data}, choice, key, left)
            if isinstance(data, dict) and is_struct(choice):
                return self._object(data, choice, key, left)
            if isinstance(data, dict) and is_tagged(choice):
                return self._tagged(data, choice, key, left)
            if isinstance(data, dict) and get_origin(choice) is dict:
                return self._mapping(data, get_args(choice)[1], key, left)
            if isinstance(data, list | tuple) and get_origin(choice) is tuple:
                return self._list(data, get_args(choice)[0], key, left)
        return data if self._fits(data, kind, key) else self._instead(data, kind, key)

    def _tagged(self, data: dict[Any, Any], kind: type[Tagged], key: Key, left: Key) -> Any:
        if meant := kind.kind_meant(data):
            self.problems.append(Problem(key, f"`kind` is missing: write `kind: {meant}`"))
            data = {"kind": meant, **data}
        name = kind.kind_in(data)
        if not self._fits(name, str, (*key, "kind")):
            return self._lost(key)
        try:
            struct = kind.struct_of(name)
        except OptionError as problem:
            self.problems.append(Problem((*key, "kind") if "kind" in data else key, str(problem)))
            return self._lost(key)
        return self._object(data, struct, key, left)

    def _object(self, data: dict[Any, Any], kind: type[msgspec.Struct], key: Key, left: Key) -> Any:
        fields, made, before = _fields(kind), {}, len(self.problems)
        missing = dict.fromkeys(_required(kind), True)
        for name, value in data.items():
            meant = name if name in fields else self._meant(name, data, kind, key)
            if meant:
                self._steps[(*left, meant)] = name
                missing.pop(meant, None)
                if (found := self._value(value, fields[meant], (*key, name), (*left, meant))) is not UNUSABLE:
                    made[meant] = found
        for name in missing:
            self.problems.append(Problem(key, f"`{name}` is missing", at=(*key, name)))
        whole = all(name in made for name in _required(kind))
        if whole and (len(self.problems) > before or self._fits(made, kind, key)):
            return made
        return self._lost(key)

    def _meant(self, name: Any, data: dict[Any, Any], kind: type[msgspec.Struct], key: Key) -> str:
        """The field that an unknown key stands for; empty: none."""
        if not isinstance(name, str):
            self._is_no_name(name, key)
            return ""
        fields, renamed = _fields(kind), renamed_keys(kind).get(name, "")
        hint = f": renamed to `{renamed}`" if renamed else ""
        shown = len(self._unknown) < MAX_DIAGNOSTICS  # the names of a wrong file are not compared with ours
        hint = hint or (did_you_mean_or_list(name, fields, otherwise="it takes") if shown else "")
        self.problems.append(Problem(key, f"unknown key `{name}`{hint}", at=(*key, name)))
        self._unknown.add((*key, name))
        meant = renamed or (likely_match(name, fields) if shown else "")
        return meant if meant not in data else ""

    def _mapping(self, data: dict[Any, Any], kind: Any, key: Key, left: Key) -> Any:
        made = {}
        for name, value in data.items():
            if not isinstance(name, str):
                self._is_no_name(name, key)
            elif (found := self._value(value, kind, (*key, name), (*left, name))) is not UNUSABLE:
                made[name] = found
        return made

    def _list(self, data: Any, kind: Any, key: Key, left: Key) -> Any:
        made: list[Any] = []
        for place, item in enumerate(data):
            here = (*left, len(made))
            self._steps[here] = place
            if (found := self._value(item, kind, (*key, place), here)) is not UNUSABLE:
                made.append(found)
        if data and not made:
            self.changed_keys.add(key)
        return made

    def _fits(self, data: Any, kind: Any, key: Key) -> bool:
        try:
            msgspec.convert(data, kind, dec_hook=decode_value)
        except msgspec.ValidationError as problem:
            self.problems.append(_problem_of(problem, data, kind, key))
            return False
        return True

    def _instead(self, data: Any, kind: Any, key: Key) -> Any:
        """Keeps the meaning, or at least the place: other keys may refer to it by name."""
        self.changed_keys.add(key)
        quoted = () if data is None or isinstance(data, str | list | dict) else (str(data),)
        for other in (*quoted, {}):
            try:
                msgspec.convert(other, kind, dec_hook=decode_value)
            except msgspec.ValidationError:
                continue
            return other
        return UNUSABLE

    def _lost(self, key: Key) -> Any:
        self.changed_keys.add(key)
        return UNUSABLE

    def _is_no_name(self, name: Any, key: Key) -> None:
        self.changed_keys.add((*key, str(name)))
        self.problems.append(Problem(key, f"the key {name!r} is not text: put it in quotes", at=(*key, str(name))))


def _problem_of(problem: msgspec.ValidationError, data: Any, kind: Any, key: Key) -> Problem:
    match = _MSGSPEC_MESSAGE.match(str(problem))
    assert match is not None
    what = match["what"][0].lower() + match["what"][1:]
    field = _FIELD.search(match["what"])
    return Problem(
        key, readable_type_error(what) + _hint(what, data, kind, key), at=(*key, field[1]) if field else None
    )


def _hint(what: str, data: Any, kind: Any, key: Key) -> str:
    """What would be right, where the message does not say it."""
    if isinstance(data, str) and _is_quoted(data, kind):
        return " (remove the quotes)"
    if what.startswith("invalid enum value"):
        if renamed := (_of_annotation(kind, "renamed") or {}).get(data):
            return f": renamed to `{renamed}`"
        names = [name for choice in alternatives(kind) if get_origin(choice) is Literal for name in get_args(choice)]
        otherwise = "it takes a whole number," if int in alternatives(kind) else "there are"
        return did_you_mean_or_list(str(data), filter(None, names), otherwise=otherwise)
    if data is None and key and isinstance(key[-1], str):
        return " (there is nothing behind the key: give it a value or leave it out)"
    structs = filter(is_struct, alternatives(kind))
    if isinstance(data, bool) and any("enabled" in _fields(struct) for struct in structs):
        return f" (write {{enabled: {str(data).lower()}}})"
    if is_unquoted(what):
        example = _of_annotation(kind, "example")
        return f" (write for example {example})" if example else " (put it in quotes)"
    return ""


def _is_quoted(text: str, kind: Any) -> bool:
    """A number or a truth value that fits without its quotes."""
    try:
        value = msgspec.json.decode(text)
        msgspec.convert(value, kind, dec_hook=decode_value)
    except msgspec.MsgspecError:
        return False
    return isinstance(value, int | float)


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The parts of a union, without annotations."""
    if get_origin(kind) is Annotated:
        return alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return tuple(choice for part in get_args(kind) for choice in alternatives(part))
    return (kind,)


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def shorthand(kind: Any) -> str:
    """The field that a plain text in place of the object gives."""
    return getattr(kind, "__shorthand__", "") if is_struct(kind) else ""


def renamed_keys(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Keys of earlier versions and their fields: `__renamed__` of the type and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= vars(base).get("__renamed__", {})
    return found


def _of_annotation(kind: Any, name: str) -> Any:
    """`renamed`: values of earlier versions; `example`: a value as it should be. None: its annotations have none."""
    found = ((meta.extra or {}).get(name) for meta in getattr(kind, "__metadata__", ()))
    return next(filter(None, found), None)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


@cache
def _required(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
