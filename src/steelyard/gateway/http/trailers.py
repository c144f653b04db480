"""Trailers of answers that did not announce them, found in bytes that pass through as they are.

The parser tells where an answer ends, not where its last chunk begins. Nearly all answers end with an empty last chunk;
one compare of the last bytes shows that. Else the trailers are found from the end: lines with a colon after a size of
0. Those that only a head may say are taken out. Trailers that come in pieces are kept until they are all there.
"""

from __future__ import annotations

import re
from typing import Final

from .headers import HeaderTable, MalformedMessageError

END_WITHOUT_TRAILERS: Final = b"\n0\r\n\r\n"  # the last bytes of an answer without trailers
EMPTY_CHUNKED_BODY: Final = b"0\r\n\r\n"  # that has no other chunk
MAX_TRAILER_BYTES: Final = 4096  # bytes; an answer with more is cut off

_SIZE = rb"\n0+[ \t]*(?:;[^\r\n]*)?\r\n"
_WHOLE = re.compile(_SIZE + rb"((?:[^\r\n:]+:[^\r\n]*\r\n)*)\r\n\Z")
_BEGUN = re.compile(_SIZE + rb"((?:[^\r\n:]+:[^\r\n]*\r\n)*[^\r\n]*\r?)\Z")


def find_trailers(before: bytes, data: bytes) -> int:
    """Where trailers begin that are not all there, in the piece that came last; its length: nowhere."""
    text, skipped = _joined(before, data)
    found = _BEGUN.search(text, max(0, len(text) - MAX_TRAILER_BYTES))
    return max(found.start(1) - skipped, 0) if found is not None else len(data)


def filter_trailers(before: bytes, data: bytes, fields: HeaderTable) -> bytes | None:
    """The end of an answer with those of its trailers that may be passed on; None: some were passed on unseen."""
    text, skipped = _joined(before, data)
    found = _WHOLE.search(text, max(0, len(text) - MAX_TRAILER_BYTES))
    if found is None or found.start(1) < skipped:
        return None
    try:
        kept = fields.trailers(found[1].split(b"\r\n")[:-1])
    except MalformedMessageError:
        return None
    return text[skipped : found.start(1)] + b"".join(line + b"\r\n" for line in kept) + b"\r\n"


def _joined(before: bytes, data: bytes) -> tuple[bytes, int]:
    """With the last bytes of the piece before; where there is none, a line begins."""
    return (before + data, len(before)) if before else (b"\n" + data, 1)
