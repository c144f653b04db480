"""One field of a multipart/form-data body (RFC 7578), without parsing the rest."""

from __future__ import annotations

import re

_BOUNDARY = re.compile(
    rb'multipart/form-data\b.*?\bboundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE | re.DOTALL
)
# Tied to the beginning of a line, so that a hostile part costs no more than its length.
_NAME = re.compile(rb'\r\ncontent-disposition:[^\r\n]*[; \t]name=(?:"([^"\r\n]*)"|([^\s;"]+))', re.IGNORECASE)
PARTS = 64  # looked at; a body of nothing but boundaries must not hold up the others
HEAD = 4096  # bytes of a part's headers
VALUE = 1024  # bytes of a value worth reading


def form_field(body: bytes, content_type: bytes, name: bytes) -> str | None:
    """The value of the first field of that name; None: no such field, or no such form."""
    match = _BOUNDARY.match(content_type)
    if match is None:
        return None
    delimiter = b"\r\n--" + (match[1] or match[2])
    # The first delimiter has no line before it, unless there is a preamble.
    at = 0 if body.startswith(delimiter[2:]) else _after(body.find(delimiter), 2)
    for _ in range(PARTS):
        begin = body.find(b"\r\n\r\n", at, at + HEAD) if at >= 0 else -1
        if begin < 0:
            return None
        end = body.find(delimiter, begin + 2)
        found = _NAME.search(body, at, begin)
        if found is not None and (found[1] or found[2]) == name:
            # Without an end, this may be a head of the body that was cut in the middle of the value.
            return body[begin + 4 : end].decode("utf-8", "replace") if begin < end <= begin + 4 + VALUE else None
        at = _after(end, 2)
    return None


def _after(place: int, length: int) -> int:
    return place + length if place >= 0 else -1
