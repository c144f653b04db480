"""The table of dialects. A new one is one file and one line here; the suite in tests/protocols finds it."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ..core.errors import OptionError
from .base import Answer, Call, Dialect, ModelView, Peek

# In this order they are asked whether a path is theirs; the last takes everything.
DIALECTS: dict[str, str] = {
    "openai": "steelyard.protocols.openai:OpenAI",
    "oip": "steelyard.protocols.oip:OpenInference",
    "http": "steelyard.protocols.plain:PlainHttp",
}

__all__ = ["DIALECTS", "Answer", "Call", "Dialect", "ModelView", "Peek", "dialect_of", "find_dialect", "make_dialect"]


def find_dialect(name: str) -> type[Dialect]:
    """The class behind a name of the table, or behind `package.module:Class`."""
    target = DIALECTS.get(name, name)
    if ":" not in target:
        raise OptionError(
            f"no dialect {name!r}; there are {', '.join(DIALECTS)}, or name your own as package.module:Class"
        )
    module_name, _, class_name = target.partition(":")
    if not module_name or not class_name:
        raise OptionError(f"dialect {name!r}: write package.module:Class")
    try:
        module = import_module(module_name)
    except Exception as problem:  # whatever a user's module raises while it is imported
        raise OptionError(f"dialect {name!r}: cannot import {module_name!r}: {problem}") from problem
    found = getattr(module, class_name, None)
    if found is None:
        raise OptionError(f"dialect {name!r}: module {module_name!r} has no {class_name!r}")
    if not (isinstance(found, type) and issubclass(found, Dialect)):
        raise OptionError(f"dialect {name!r}: {class_name} is not a subclass of steelyard.protocols.Dialect")
    return found


@cache
def make_dialect(name: str) -> Dialect:
    """The dialect of that name. It keeps no state, so there is one of each."""
    return find_dialect(name)()


def dialect_of(method: str, path: str) -> tuple[Dialect, Call]:
    """Who claims this request, and what it is. `path` has no query. Pure: the answer can be kept."""
    for name in DIALECTS:
        dialect = make_dialect(name)
        call = dialect.call(method, path)
        if call is not None:
            return dialect, call
    raise OptionError(f"no dialect of the table takes {method} {path}; the last should take everything")
