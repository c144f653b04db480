"""What is wrong with a document, and where."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..core.errors import SteelyardError

Key = tuple[str | int, ...]  # ("models", "gpt-4.1", "replicas", 0): names hold any character
MAX_DIAGNOSTICS = 50  # of one document: more are a wrong file, such as another program's configuration
MAX_QUOTED_CHARS = 1000  # of what a diagnostic takes from a document
_PLAIN_STEP = re.compile(r"[^\s.\[\]\"']+")


def format_key(key: Key) -> str:
    """`models."gpt-4.1".replicas[0]`"""
    return "".join(map(_format_step, key)).removeprefix(".") or "top level"


def printable(text: str) -> str:
    """Terminal codes are escaped: a file may be a stranger's."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_QUOTED_CHARS else f"{text[:MAX_QUOTED_CHARS]}…"


def _format_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_STEP.fullmatch(step) and step.isprintable() else f'."{step}"'


class Problem(NamedTuple):
    """`at`: where to look, if that is not the key itself."""

    key: Key
    what: str
    at: Key | None = None


class Diagnostic(NamedTuple):
    """A problem with its place. Line 0: the file as a whole."""

    file: str
    line: int
    key: str
    what: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return printable(" ".join(f"{where}: {self.key + ': ' if self.key else ''}{self.what}".split()))


class DocumentError(SteelyardError, ValueError):
    """`lines` says all that is wrong with a document, a line each."""

    reason = "bad_document"

    def __init__(self, message: str, faults: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(message)
        self.diagnostics = faults

    @classmethod
    def of(cls, faults: Iterable[Diagnostic]) -> DocumentError:
        """The first of them by line, each bounded in length, and how many more there are."""
        found = sorted(dict.fromkeys(faults), key=lambda fault: fault.line)
        shown = [fault._replace(key=_cut(fault.key), what=_cut(fault.what)) for fault in found[:MAX_DIAGNOSTICS]]
        if left := len(found) - len(shown):
            what = f"{left:,} more errors are not shown: correct these first, unless this is the wrong file"
            shown.append(Diagnostic(found[0].file, 0, "", what))
        return cls("\n".join(map(str, shown)), tuple(shown))

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(map(str, self.diagnostics)) or (str(self),)
