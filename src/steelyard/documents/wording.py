"""Type errors in plain words: `expected a mapping, got a list`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_TYPE_NAMES = {
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
_TYPE_ERROR = re.compile(
    r"expected `(?P<wanted>[^`]*)`(?: (?P<bound>[<>]=?) (?P<limit>\S+))?(?:, got `(?P<got>[^`]*)`)?"
)
_TEXT_ERROR = re.compile(r"expected `str` (?:of length <= (?P<most>\d+)|matching regex '(?P<pattern>.*)')")
_BOUND_WORDS = {">=": "from", "<=": "up to", ">": "above", "<": "below"}
UNQUOTED_SCALARS = ("int", "float", "bool", "date", "datetime", "time")


def readable_type_error(what: str) -> str:
    """Of a message of msgspec with a small first letter. Other messages stay."""
    if text := _TEXT_ERROR.fullmatch(what):
        bound = f"of up to {text['most']} characters" if text["most"] else f"that matches {text['pattern']}"
        return f"expected text {bound}"
    found = _TYPE_ERROR.fullmatch(what)
    if found is None:
        return what.replace("invalid enum value", "no such value:", 1)
    parts = [f"expected {_alternatives_in_words(found['wanted'])}"]
    if found["bound"]:
        parts.append(f"{_BOUND_WORDS[found['bound']]} {_number(found['limit'])}")
    got = f", got {_TYPE_NAMES.get(found['got'], found['got'])}" if found["got"] else ""
    return " ".join(parts) + got


def is_unquoted(what: str) -> bool:
    """Text was wanted, and YAML took it for something else."""
    found = _TYPE_ERROR.fullmatch(what)
    return found is not None and "str" in found["wanted"].split(" | ") and found["got"] in UNQUOTED_SCALARS


def _alternatives_in_words(kinds: str) -> str:
    names = [_TYPE_NAMES.get(kind, kind) for kind in kinds.split(" | ") if kind != "null"]
    if "a whole number" in names and "a number" in names:
        names.remove("a whole number")
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names) or "nothing"


def _number(text: str) -> str:
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean `x`?)` or nothing, to end a message."""
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean `{close[0]}`?)" if close else ""


def did_you_mean_or_list(name: str, known: Iterable[str], *, otherwise: str) -> str:
    names = list(known)
    return did_you_mean(name, names) or (f" ({otherwise} {', '.join(names)})" if names else "")


def likely_match(name: str, known: Iterable[str]) -> str:
    """The name that a typo explains, or nothing."""
    return next(iter(get_close_matches(name, list(known), 1, 0.8)), "")
