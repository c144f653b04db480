"""What does not fit a type, in words that people use: `expected a mapping, got a list`."""

from __future__ import annotations

import re

_NAMES = {
    "object": "a mapping",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "date": "a date",
    "datetime": "a date and time",
    "time": "a time of day",
}
_TYPE = re.compile(r"expected `(?P<wanted>[^`]*)`(?: (?P<bound>[<>]=?) (?P<limit>\S+))?(?:, got `(?P<got>[^`]*)`)?")
_BOUNDS = {">=": "from", "<=": "up to", ">": "above", "<": "below"}
SCALARS = ("int", "float", "bool", "date", "datetime", "time")


def in_words(what: str) -> str:
    """A message of msgspec, whose first letter is small already. What is not about types stays as it is."""
    found = _TYPE.fullmatch(what)
    if found is None:
        return what.replace("invalid enum value", "no such value:", 1)
    parts = [f"expected {_one_of(found['wanted'])}"]
    if found["bound"]:
        parts.append(f"{_BOUNDS[found['bound']]} {_number(found['limit'])}")
    got = f", got {_NAMES.get(found['got'], found['got'])}" if found["got"] else ""
    return " ".join(parts) + got


def is_unquoted(what: str) -> bool:
    """Was text wanted, and did YAML take what is there for something else?"""
    found = _TYPE.fullmatch(what)
    return found is not None and "str" in found["wanted"].split(" | ") and found["got"] in SCALARS


def _one_of(kinds: str) -> str:
    names = [_NAMES.get(kind, kind) for kind in kinds.split(" | ") if kind != "null"]
    if "a whole number" in names and "a number" in names:
        names.remove("a whole number")
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names) or "nothing"


def _number(text: str) -> str:
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text
