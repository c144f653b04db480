"""A class behind a name: of a table, or a user's own as `package.module:Class`."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TypeVar

from .errors import OptionError

T = TypeVar("T")


def find_class(what: str, name: str, table: Mapping[str, str], base: type[T], shown: str) -> type[T]:
    """`what` and `shown` (the public name of `base`) are for the error, which says what would be right."""
    target = table.get(name, name)
    if ":" not in target:
        close = get_close_matches(name, table, 1)
        meant = f" (did you mean `{close[0]}`?)" if close else ""
        known = ", ".join(table)
        raise OptionError(f"no {what} {name!r}{meant}; there are {known}, or name your own as package.module:Class")
    module_name, _, class_name = target.partition(":")
    if not module_name or not class_name:
        raise OptionError(f"{what} {name!r}: write package.module:Class")
    try:
        module = import_module(module_name)
    except Exception as problem:  # whatever a user's module raises while it is imported
        raise OptionError(f"{what} {name!r}: cannot import {module_name!r}: {problem}") from problem
    found = getattr(module, class_name, None)
    if found is None:
        raise OptionError(f"{what} {name!r}: module {module_name!r} has no {class_name!r}")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise OptionError(f"{what} {name!r}: {class_name} is not a subclass of {shown}")
    return found
