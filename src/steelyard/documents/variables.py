"""`${NAME}` and `${NAME:-default}` in the texts of a document; `$${` is a plain `${`.

Only inside single values, after YAML has been read: what a variable holds cannot change the shape of a document. What
it holds may be a secret, so messages show the name instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_USE = re.compile(r"\$\$\{|\$\{(?P<inside>[^{}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_ESCAPE = "; write $${ where a plain ${ is meant"
_SHORT = 4  # characters: a value that is shorter is no secret, and part of many a word
_BEGIN = 8  # characters by which a long value is recognised where a message has cut it off


class Variables:
    """Those of an environment, and what of them was used."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._used: dict[str, str] = {}  # what is not to be shown, and what to show instead

    def expand(self, text: str) -> str:
        """ValueError says which variable is not set, or what was not understood."""
        whole = _USE.sub(self._value, text)
        if whole != text and self._used:
            self._hide(whole, text)
        return whole

    def masked(self, message: str) -> str:
        """With `${NAME}` wherever the value of a variable stands."""
        for value in sorted(self._used, key=len, reverse=True):
            shown = self._used[value]
            message = message.replace(value, shown).replace(repr(value)[1:-1], shown)
            if len(value) > 2 * _BEGIN:
                message = re.sub(re.escape(value[:_BEGIN]) + r"[^\s'\"`]*", shown.replace("\\", r"\\"), message)
        return message

    def _value(self, found: re.Match[str]) -> str:
        if found["inside"] is None:
            return "${"
        inside = _INSIDE.fullmatch(found["inside"])
        if not found["end"] or inside is None:
            raise ValueError(f"{found[0][:40]!r} is not a variable: write ${{NAME}} or ${{NAME:-default}}{_ESCAPE}")
        name, default = inside["name"], inside["default"]
        value = self._environment.get(name, "")
        if name not in self._environment and default is None:
            raise ValueError(f"the variable {name} is not set: set it, or write ${{{name}:-default}}{_ESCAPE}")
        if value or default is None:
            self._hide(value, f"${{{name}}}")
            return value
        return default

    def _hide(self, value: str, shown: str) -> None:
        if len(value) >= _SHORT:
            self._used[value] = shown
