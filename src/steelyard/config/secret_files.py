"""Files of bearer tokens and of headers. Their content is never shown."""

from __future__ import annotations

import re
from pathlib import Path

_TOKEN = re.compile(r"[\x21-\x7e]{1,512}")
_MIN_TOKEN_CHARS = 16  # fewer can be guessed
_HOW_TO_MAKE_ONE = "`openssl rand -hex 32` makes a good one"
_MAX_FILE_BYTES = 64 << 10
_HEADER_LINE = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\x21-\x7e][\x20-\x7e]*)")


def read_tokens(path: str | Path) -> tuple[str, ...]:
    """One a line, at least one; skips empty lines and comments (#). ValueError says what is wrong."""
    try:
        if Path(path).is_fifo():
            raise ValueError("it is a pipe, and must be read again when it changes")
        with open(path, "rb") as file:
            octets = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise ValueError(f"{path}: cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    if len(octets) > _MAX_FILE_BYTES:
        raise ValueError(f"{path}: longer than {_MAX_FILE_BYTES >> 10} KiB, so it is hardly a list of tokens")
    lines = [line.strip() for line in octets.decode("utf-8", "replace").splitlines()]
    found = {number: line for number, line in enumerate(lines, 1) if line and not line.startswith("#")}
    for number, token in found.items():
        if not _TOKEN.fullmatch(token):
            raise ValueError(f"{path}: line {number}: a token is visible ASCII without spaces, at most 512 characters")
        if len(token) < _MIN_TOKEN_CHARS:
            what = f"a token has at least {_MIN_TOKEN_CHARS} characters; {_HOW_TO_MAKE_ONE}"
            raise ValueError(f"{path}: line {number}: {what}")
    if not found:
        raise ValueError(f"{path}: there is no token in it: write one a line; {_HOW_TO_MAKE_ONE}")
    return tuple(found.values())


def read_headers(path: str) -> dict[str, str]:
    """`name: value` a line; skips empty lines and comments (#). OSError, ValueError."""
    found = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            match = _HEADER_LINE.fullmatch(line.rstrip())
            if match is None:
                raise ValueError(f"line {number} is not `name: value`")  # without the line: it may hold a secret
            found[match[1].lower()] = match[2]
    return found
