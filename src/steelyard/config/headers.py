"""Files of headers: tokens for others, kept out of the configuration."""

from __future__ import annotations

import re
from pathlib import Path

_HEADER_LINE = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\x21-\x7e][\x20-\x7e]*)")


def read_headers(path: str) -> dict[str, str]:
    """`name: value` a line; empty lines and those that begin with # are left out. OSError, ValueError."""
    found = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            match = _HEADER_LINE.fullmatch(line.rstrip())
            if match is None:
                raise ValueError(f"line {number} is not `name: value`")  # without the line: it may hold a secret
            found[match[1].lower()] = match[2]
    return found
