"""`${NAME}` and `${NAME:-default}` in the texts of a document; `$${` is a plain `${`.

Expanded in single values after YAML was read, so a variable cannot change the shape of a document. It may be a secret,
so messages show its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inside>[^{}]*)(?P<end>\}?)")
_NAME_AND_DEFAULT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_ESCAPE_HINT = "; write $${ where a plain ${ is meant"
_MIN_SECRET_CHARS = 4  # a shorter value is no secret, and part of many words
_QUOTED = re.compile(r"(?<=['\"`])[^'\"`…]{8,}(?=['\"`…]|$)")  # may be a part of a value


class Variables:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._values: dict[str, str] = {}  # secret → what to show instead
        self._texts: dict[str, str] = {}  # the same for texts with variables in them

    def expand(self, text: str) -> str:
        """ValueError says which variable is not set, or what was not understood."""
        whole = _REFERENCE.sub(self._value, text)
        if whole != text and self._values:
            _register_secret(self._texts, whole, text)
        return whole

    def redacted(self, message: str) -> str:
        """With `${NAME}` wherever the value of a variable stands."""
        hidden = {**self._texts, **self._values}
        for value in sorted(hidden, key=len, reverse=True):
            message = message.replace(value, hidden[value]).replace(_escaped(value), hidden[value])
        return _QUOTED.sub(self._part, message) if hidden else message

    def _part(self, found: re.Match[str]) -> str:
        """A quote may be a part of a value, or the beginning of a text with one in it."""
        text = found[0]
        parts = (shown for value, shown in self._values.items() if text in value or text in _escaped(value))
        starts = (shown for whole, shown in self._texts.items() if _escaped(whole).startswith(text))
        return next(parts, None) or (next(starts, text) if found.string[found.end() :].startswith("…") else text)

    def _value(self, found: re.Match[str]) -> str:
        if found["inside"] is None:
            return "${"
        inside = _NAME_AND_DEFAULT.fullmatch(found["inside"])
        if not found["end"] or inside is None:
            raise ValueError(
                f"{found[0][:40]!r} is not a variable: write ${{NAME}} or ${{NAME:-default}}{_ESCAPE_HINT}"
            )
        name, default = inside["name"], inside["default"]
        value = self._environment.get(name, "")
        if name not in self._environment and default is None:
            raise ValueError(f"the variable {name} is not set: set it, or write ${{{name}:-default}}{_ESCAPE_HINT}")
        if value or default is None:
            _register_secret(self._values, value, f"${{{name}}}")
            return value
        return default


def _register_secret(hidden: dict[str, str], value: str, shown: str) -> None:
    if len(value) >= _MIN_SECRET_CHARS:
        hidden[value] = shown


def _escaped(value: str) -> str:
    """As messages quote it."""
    return repr(value)[1:-1]
