"""Policies and scalers by name: from a table, or a user's own as `package.module:Class`. Options are the keyword
arguments of `__init__`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from math import isfinite
from typing import Any, TypeVar

from .errors import OptionError
from .request import INFINITY

T = TypeVar("T")


def find_class(
    what: str, name: str, table: Mapping[str, str], base: type[T], shown: str, methods: Sequence[str] = ()
) -> type[T]:
    """`what` and `shown` (the public name of `base`) are for errors. `methods`: what a subclass has to define."""
    target = table.get(name, name)
    if ":" not in target:
        close = get_close_matches(name, table, 1)
        meant = f" (did you mean `{close[0]}`?)" if close else ""
        known = f"there {'are' if len(table) > 1 else 'is only'} {', '.join(table)}"
        raise OptionError(f"no {what} {name!r}{meant}; {known}, or name your own as package.module:Class")
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
    for method in methods:
        if inspect.getattr_static(found, method) is inspect.getattr_static(base, method):
            raise OptionError(f"{what} {name!r}: {class_name} does not define {method}")
    return found


def plugin_options(kind: type[object]) -> dict[str, Any]:
    parameters = inspect.signature(kind).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def renamed_options(kind: type[object]) -> dict[str, str]:
    """Options of earlier versions, and their present names."""
    return getattr(kind, "renamed_options", {})


def current_options(kind: type[object], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that an earlier version wrote, by their present names."""
    names = renamed_options(kind)
    return {names.get(name, name): value for name, value in options.items()}


def make_plugin(what: str, name: str, kind: type[T], options: Mapping[str, Any], *args: Any) -> T:
    """An instance with these options; an error names the plugin and the option."""
    known = plugin_options(kind)
    for option in options:
        if option not in known:
            renamed = renamed_options(kind).get(option)
            takes = f"it takes {', '.join(known) or 'no options'}"
            hint = f"renamed to `{renamed}`" if renamed else takes
            raise OptionError(f"{what} {name!r}: unknown option {option!r} ({hint})")
    try:
        return kind(*args, **options)
    except OptionError as problem:
        raise OptionError(f"{what} {name!r}: {problem}") from None
    except TypeError as problem:
        raise OptionError(f"{what} {name!r}: {problem}") from problem


def require(ok: bool, name: str, wanted: str, value: object) -> None:
    if not ok:
        raise OptionError(f"{name}: must be {wanted}, not {value!r}")


def number(
    name: str,
    value: float,
    *,
    least: float = -INFINITY,
    above: float = -INFINITY,
    below: float = INFINITY,
    most: float = INFINITY,
) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if fine and value >= least and value > above and value < below and value <= most:
        return float(value)
    wanted = "a number"
    if least > -INFINITY or above > -INFINITY:
        wanted += f" of at least {least:g}" if least > -INFINITY else f" above {above:g}"
    if below < INFINITY:
        wanted += f", below {below:g}"
    if most < INFINITY:
        wanted += f", at most {most:g}"
    raise OptionError(f"{name}: must be {wanted}, not {value!r}")


def boolean(name: str, value: bool) -> bool:
    require(isinstance(value, bool), name, "true or false", value)
    return value
