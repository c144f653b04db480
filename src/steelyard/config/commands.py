"""Commands and addresses of started replicas: placeholders in braces, filled in for each."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

PLACEHOLDERS = ("port", "model", "device", "gpu", "id", "url")

# Left as they are: `{{name}}` of other templates, `${name}` of a shell, every brace of JSON.
_PLACEHOLDER = re.compile(r"\{\{[a-z]+\}\}|(?<!\$)\{([a-z]+)\}")


def split_command(command: str | Sequence[str]) -> list[str]:
    """The words of a command; a text is split as a shell does. ValueError says why it cannot be."""
    if isinstance(command, str):
        try:
            found = shlex.split(command)
        except ValueError:
            what = "a quote or a backslash at its end is not finished; write it as a list of words instead"
            raise ValueError(f"{command!r}: {what}") from None
    else:
        found = list(command)
    if not found or not found[0]:
        raise ValueError("name a program, for example steelyard demo-replica --port {port}")
    return found


def fill_in(text: str, values: Mapping[str, object]) -> str:
    """A placeholder without a value stays as it is."""

    def value(found: re.Match[str]) -> str:
        return str(values[found[1]]) if found[1] in PLACEHOLDERS and found[1] in values else found[0]

    return _PLACEHOLDER.sub(value, text)


def uses_placeholder(text: str, word: str) -> bool:
    return word in _placeholders(text)


def placeholder_error(text: str) -> str:
    """Names an unknown placeholder; empty: there is none."""
    for name in _placeholders(text):
        if name not in PLACEHOLDERS:
            close = get_close_matches(name, PLACEHOLDERS, 1)
            known = ", ".join(f"`{{{word}}}`" for word in PLACEHOLDERS)
            hint = f"did you mean `{{{close[0]}}}`?" if close else f"there are {known}"
            return f"`{{{name}}}` is not filled in: {hint}"
    return ""


def _placeholders(text: str) -> Iterator[str]:
    return (found[1] for found in _PLACEHOLDER.finditer(text) if found[1])


def missing_program_error(command: str | Sequence[str], folder: str, environment: Mapping[str, str]) -> str:
    """Why the program of a command cannot be run; empty: it can be, or only a start can tell."""
    path = environment.get("PATH", os.environ.get("PATH", ""))
    try:
        program = split_command(command)[0]
        if "{" in program + path:  # not known before it is filled in
            return ""
        if "/" not in program:
            return "" if shutil.which(program, path=path) else f"there is no program {program} on the PATH"
        found = Path(folder) / program
        if not found.is_file():
            return f"there is no program {found}"
        return "" if os.access(found, os.X_OK) else f"{found} may not be run"
    except ValueError:  # a NUL, a quote that does not end: reported elsewhere
        return ""


def redacted_command(command: str | Sequence[str]) -> str:
    """For people: without options, which may be long or secret."""
    shown: list[str] = []
    for word in split_command(command):
        if word.startswith("-") and word != "-m":  # python -m uvicorn
            break
        name, is_set, _ = word.partition("=")  # env KEY=secret python server.py
        shown.append(f"{name}=…" if is_set else word)
    return " ".join(shown)
