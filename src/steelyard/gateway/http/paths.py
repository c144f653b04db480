"""One spelling of a path: what is decided on is what the replica is sent (RFC 3986, 6.2.2).

Servers differ in what they make of `//`, `/./`, `/../`, `%2e` and `%2F`: Triton matches the bytes, uvicorn decodes
everything, Go and nginx clean up first. So a path is sent on with unreserved characters decoded, slashes merged and dot
segments resolved. Where an escape still leaves two readings, `Router` refuses the request if they differ.
"""

from __future__ import annotations

import re
from typing import Final

from .headers import MalformedMessageError

MAX_DECODES: Final = 3  # proxies before a server may each decode once; more is an attack

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def normalize_path(path: bytes) -> bytes:
    """Raises MalformedMessageError for what no two servers read alike."""
    if b"\\" in path:
        raise MalformedMessageError("The path has a backslash, which some servers take for a slash.")
    if b"%" in path:
        path = _ESCAPE.sub(_decoded_if_unreserved, path)
    return _resolved(path)


def alternative_readings(path: str) -> list[str]:
    """What servers that decode more take it for; empty: there is one reading."""
    found: list[str] = []
    raw = path.encode("latin-1")
    while b"%" in raw:
        decoded = _resolved(_ESCAPE.sub(_decoded, raw).replace(b"\\", b"/"))
        if decoded == raw:
            break
        if len(found) == MAX_DECODES:
            raise MalformedMessageError("The path is escaped too many times.")
        raw = decoded
        found.append(raw.decode("latin-1"))
    return found


def _decoded_if_unreserved(match: re.Match[bytes]) -> bytes:
    digits = match[1]
    if digits is None or digits == b"00":
        raise MalformedMessageError("The path has a percent sign that escapes nothing, or a zero byte.")
    character = bytes.fromhex(digits.decode())
    return character if character[0] in _UNRESERVED else match[0]


def _decoded(match: re.Match[bytes]) -> bytes:
    digits = match[1]
    return bytes.fromhex(digits.decode()) if digits is not None else b"%"


def _resolved(path: bytes) -> bytes:
    """Without empty and dot segments; one at the end leaves a slash."""
    if b"//" not in path and b"/." not in path:
        return path
    kept: list[bytes] = []
    segments = path.split(b"/")
    for segment in segments:
        if segment == b"..":
            if kept:
                kept.pop()
        elif segment and segment != b".":
            kept.append(segment)
    whole = b"/" + b"/".join(kept)
    return whole + b"/" if kept and segments[-1] in (b"", b".", b"..") else whole
