"""One field of a multipart/form-data body (RFC 7578): its value, and whether all readers find it."""

from __future__ import annotations

import re

_BOUNDARY = re.compile(
    rb'multipart/form-data\b.*?\bboundary=(?:"([^"]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE | re.DOTALL
)
# Anchored to a line's start, so that a hostile part costs no more than its length.
_NAME = re.compile(rb'\r\ncontent-disposition:[^\r\n]*[; \t]name=(?:"([^"\r\n]*)"|([^\s;"]+))', re.IGNORECASE)
_DISPOSITION = re.compile(
    rb'content-disposition:[ \t]*form-data((?:[ \t]*;[ \t]*[\w*-]+=(?:"(?:[^"\\]|\\.)*"|[^\s;"]+))*)[ \t]*',
    re.IGNORECASE,
)
_PARAMETER = re.compile(rb';[ \t]*([\w*-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
AMBIGUOUS_FORM_SENTENCE = "The form can be read in two ways, or names the model more than once."
MAX_PARTS = 64  # a body of nothing but boundaries must not hold up others
MAX_PART_HEAD_BYTES = 4096
MAX_VALUE_BYTES = 1024


def form_field(body: bytes, content_type: bytes, name: bytes) -> str | None:
    """The first of that name; None: no such field, or no form."""
    match = _BOUNDARY.match(content_type)
    if match is None:
        return None
    delimiter = b"\r\n--" + (match[1] or match[2])
    # Without a preamble, no line break precedes the first delimiter.
    at = 0 if body.startswith(delimiter[2:]) else _after(body.find(delimiter), 2)
    for _ in range(MAX_PARTS):
        begin = body.find(b"\r\n\r\n", at, at + MAX_PART_HEAD_BYTES) if at >= 0 else -1
        if begin < 0:
            return None
        end = body.find(delimiter, begin + 2)
        field = _field_name(body[at + len(delimiter) - 2 : begin])  # as `form_ambiguity` reads it
        if field is None and (found := _NAME.search(body, at, begin)) is not None:
            field = found[1] or found[2]
        if field == name:
            # Without an end, the value may be cut.
            whole = begin < end <= begin + 4 + MAX_VALUE_BYTES
            return body[begin + 4 : end].decode("utf-8", "replace") if whole else None
        at = _after(end, 2)
    return None


def _after(place: int, length: int) -> int:
    return place + length if place >= 0 else -1


def form_ambiguity(body: bytes, content_type: bytes, name: bytes) -> str:
    """Why readers may find different values, as a sentence; empty: they cannot."""
    match = _BOUNDARY.match(content_type)
    if match is None or content_type.lower().count(b"boundary") != 1:
        return AMBIGUOUS_FORM_SENTENCE
    dashes = b"--" + (match[1] or match[2])
    if not body.startswith(dashes):  # a preamble may be JSON to a server that ignores the content type
        return AMBIGUOUS_FORM_SENTENCE
    at, parts, found = len(dashes), 0, []
    while body[at : at + 2] != b"--":
        begin = body.find(b"\r\n\r\n", at, at + MAX_PART_HEAD_BYTES)
        field = _field_name(body[at:begin]) if begin >= 0 else None
        end = body.find(b"\r\n" + dashes, begin + 2)
        parts += 1
        if field is None or end < 0 or parts > MAX_PARTS:
            return AMBIGUOUS_FORM_SENTENCE
        if field.strip().lower() == name:
            found.append(field)
        at = end + 2 + len(dashes)
    return AMBIGUOUS_FORM_SENTENCE if found not in ([], [name]) or body.count(dashes) != parts + 1 else ""


def _field_name(head: bytes) -> bytes | None:
    """Of a part's headers with the line break before them; None: not certain."""
    first, *lines = head.split(b"\r\n")
    if first or b"\n" in b"".join(lines):
        return None
    dispositions = [line for line in lines if line[:20].lower() == b"content-disposition:"]
    match = _DISPOSITION.fullmatch(dispositions[0]) if len(dispositions) == 1 else None
    if match is None:
        return None
    told_as = [(key.lower(), value or token) for key, value, token in _PARAMETER.findall(match[1])]
    names = [value for key, value in told_as if key in (b"name", b"name*")]
    return names[0] if len(names) == 1 and b"\\" not in names[0] and (b"name*", names[0]) not in told_as else None
