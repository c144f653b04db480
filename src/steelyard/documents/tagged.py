"""Objects of a document that come in kinds: `kind` names the struct that reads the rest.

The type of such a field is a subclass of `Tagged`. Each kind is a struct that derives from it too, found by name in a
table of `"module:Class"` strings, or named as `package.module:Class`; its module is imported when a document uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import msgspec

from ..core.errors import OptionError
from ..core.plugins import find_class


class Tagged:
    __slots__ = ()

    noun: ClassVar[str] = "kind"  # for messages: `no runtime 'docker'`
    base_name: ClassVar[str] = ""  # the public name of the struct that a kind derives from
    kinds: ClassVar[Mapping[str, str]] = {}  # name: "module:Class"
    required_methods: ClassVar[tuple[str, ...]] = ()  # what a kind has to define
    default_kind: ClassVar[str] = ""  # of an object that names none
    kind_of_old_key: ClassVar[Mapping[str, str]] = {}  # of earlier versions

    @classmethod
    def struct_of(cls, kind: str) -> Any:
        """Imports the kind's module. OptionError says what would be right."""
        if not kind:
            raise OptionError(f"`kind` is missing: there are {', '.join(cls.kinds)}, or your own, package.module:Class")
        found = find_class(cls.noun, kind, cls.kinds, cls, cls.base_name, cls.required_methods)
        if not issubclass(found, msgspec.Struct):
            raise OptionError(f"{cls.noun} {kind!r}: {found.__name__} is not a subclass of {cls.base_name}")
        return found

    @classmethod
    def name_of(cls, struct: type) -> str:
        """Its name in the table, or package.module:Class."""
        path = f"{struct.__module__}:{struct.__qualname__}"
        return next((name for name, known in cls.kinds.items() if known == path), path)

    @classmethod
    def kind_in(cls, data: Mapping[Any, Any]) -> str:
        """Empty: it does not say."""
        return cast(str, data.get("kind", cls.default_kind))

    @classmethod
    def kind_meant(cls, data: Mapping[Any, Any]) -> str:
        """By keys of earlier versions; empty: there are none, or it names its kind."""
        if "kind" in data:
            return ""
        return next((kind for key, kind in cls.kind_of_old_key.items() if key in data), "")


def is_tagged(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Tagged) and not issubclass(kind, msgspec.Struct)


def read_tagged(kind: type[Tagged], value: Any, decode: Any) -> Any:
    data: dict[str, Any] = msgspec.convert(value, dict)  # its error says what was expected
    name: str = msgspec.convert(kind.kind_in(data), str)
    return msgspec.convert(data, kind.struct_of(name), dec_hook=decode)
