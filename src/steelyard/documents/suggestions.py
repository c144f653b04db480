"""What a mistyped name was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean `x`?)`, to put behind a message; nothing if there is none like it."""
    close = get_close_matches(name, list(known), 1)
    return f" (did you mean `{close[0]}`?)" if close else ""


def did_you_mean_or_list(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """The closest, or else all of them."""
    names = list(known)
    return did_you_mean(name, names) or (f" ({otherwise} {', '.join(names)})" if names else "")


def likely_match(name: str, known: Iterable[str]) -> str:
    """The name that was meant, if a slip of the keyboard explains the difference; else nothing."""
    return next(iter(get_close_matches(name, list(known), 1, 0.8)), "")
