"""What a PromQL expression names: enough of the language to find every metric and every label in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
      | (?P<range>\[[^\]]*\])
      | (?P<name>[A-Za-z_:][\w:]*)
      | (?P<number>\d[\w.]*)
      | (?P<sign>=~|!~|==|!=|>=|<=|[-+*/%^(){},=<>@])""",
    re.VERBOSE,
)
_LABELS = ("by", "without", "on", "ignoring", "group_left", "group_right")
_WORDS = ("and", "or", "unless", "bool", "offset", "inf", "nan")


class Selector(NamedTuple):
    metric: str
    matchers: dict[str, str]  # label → what it should be, as written between the quotes


class Named(NamedTuple):
    selectors: list[Selector]
    labels: set[str]  # of `by`, `on` and the like


def named(expression: str) -> Named:
    found = Named([], set())
    tokens = list(_tokens(expression))
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if kind != "name" or text.lower() in _WORDS:
            at += 1
        elif text.lower() in _LABELS:
            end = _end(tokens, at + 2, ")") if following == "(" else at
            found.labels.update(label for is_a, label in tokens[at + 2 : end] if is_a == "name")
            at = end + 1
        elif following in ("(", "by", "without"):  # a function
            at += 1
        else:
            end = _end(tokens, at + 2, "}") if following == "{" else at
            found.selectors.append(Selector(text, _matchers(tokens[at + 2 : end])))
            at = end + 1
    return found


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        assert match is not None, f"not PromQL: {expression[at:]}"
        at = match.end()
        if match.lastgroup != "space":
            yield str(match.lastgroup), match[0]


def _end(tokens: list[tuple[str, str]], at: int, sign: str) -> int:
    while tokens[at] != ("sign", sign):
        at += 1
    return at


def _matchers(tokens: list[tuple[str, str]]) -> dict[str, str]:
    names = [place for place, (kind, _) in enumerate(tokens) if kind == "name"]
    return {tokens[place][1]: tokens[place + 2][1][1:-1] for place in names}
