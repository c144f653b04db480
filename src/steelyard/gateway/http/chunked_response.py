"""Chunked response bodies on their way to the client, as they are or rewritten.

As they are: llhttp finds where the body ends, not where its last chunk begins. Nearly all bodies end without trailers,
which one compare of the last bytes shows. Otherwise trailers are found from the end: lines with a colon after a size of
0. Those that only a head may have are removed; trailers that come in pieces are kept until all are there.

Rewritten: for clients of HTTP/1.0, which do not know chunks, and for responses that announce trailers.
"""

from __future__ import annotations

import re
from typing import Final

import httptools

from .chunked import ChunkedReader
from .headers import HeaderTable, MalformedMessageError

END_WITHOUT_TRAILERS: Final = b"\n0\r\n\r\n"
EMPTY_CHUNKED_BODY: Final = b"0\r\n\r\n"
MAX_TRAILER_BYTES: Final = 4096  # a response with more is cut off
CHUNKED_RESPONSE_HEAD: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"  # brings llhttp to the chunks

_SIZE = rb"\n0+[ \t]*(?:;[^\r\n]*)?\r\n"
_WHOLE = re.compile(_SIZE + rb"((?:[^\r\n:]+:[^\r\n]*\r\n)*)\r\n\Z")
_BEGUN = re.compile(_SIZE + rb"((?:[^\r\n:]+:[^\r\n]*\r\n)*[^\r\n]*\r?)\Z")


class ChunkedResponse:
    """One chunked body. `done`: its last byte has come; `excess`: and more after it."""

    __slots__ = ("done", "excess")

    def __init__(self) -> None:
        self.done = False
        self.excess = False

    def feed(self, data: bytes) -> bytes:
        """What to pass on, now that `data` has come. Raises MalformedMessageError: the response must be cut off."""
        raise NotImplementedError


class PassedChunks(ChunkedResponse):
    __slots__ = ("_fields", "_last_bytes", "_messages", "_parser", "_partial_trailers")

    def __init__(self, fields: HeaderTable) -> None:
        super().__init__()
        self._fields = fields
        self._messages = _MessageCounter()
        self._parser = httptools.HttpResponseParser(self._messages)
        self._parser.feed_data(CHUNKED_RESPONSE_HEAD)
        self._last_bytes = b""  # of what was passed on
        self._partial_trailers = b""  # trailers that are not all there

    def feed(self, data: bytes) -> bytes:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as problem:
            raise MalformedMessageError(str(problem)) from problem
        if self._partial_trailers:
            data, self._partial_trailers = self._partial_trailers + data, b""
        before = self._last_bytes
        joined = before + data
        messages = self._messages
        if not messages.complete:
            if b"\n0" in joined[-MAX_TRAILER_BYTES:] or not before:
                sent = _find_trailers(before, data)
                self._partial_trailers, data = data[sent:], data[:sent]
                joined = before + data
            self._last_bytes = joined[-6:]
            return data
        tail = joined[-6:]
        if messages.begun > 1 or not _is_clean_end(tail):
            raise MalformedMessageError("The replica sent data after the end of its response.")
        self.done = True
        if tail != END_WITHOUT_TRAILERS and tail != EMPTY_CHUNKED_BODY:
            return _filter_trailers(before, data, self._fields)
        return data


class _MessageCounter:
    """llhttp's callbacks. Not in the body, which has the parser: the two would keep each other in memory."""

    __slots__ = ("begun", "complete")

    def __init__(self) -> None:
        self.begun = 0
        self.complete = False

    def on_message_begin(self) -> None:
        self.begun += 1

    def on_message_complete(self) -> None:
        self.complete = True


class RewrittenChunks(ChunkedResponse):
    """Content without chunks, or in chunks of our own with the trailers that may be passed on."""

    __slots__ = ("_chunks", "_fields", "_http10")

    def __init__(self, fields: HeaderTable, http10: bool) -> None:
        super().__init__()
        self._fields = fields
        self._http10 = http10
        self._chunks = ChunkedReader()
        self._chunks.pieces = []

    def feed(self, data: bytes) -> bytes:
        chunks = self._chunks
        if chunks.feed(data) < len(data):
            self.excess = True
        self.done = chunks.done
        pieces = chunks.pieces or []
        content = b"".join(pieces)
        pieces.clear()
        if self._http10:
            return content
        if content:
            content = b"%x\r\n%b\r\n" % (len(content), content)
        if chunks.done:
            kept = self._fields.trailers(chunks.trailers)
            content += b"\r\n".join((b"0", *kept, b"", b""))
        return content


def _is_clean_end(tail: bytes) -> bool:
    """Do the chunks end what came? llhttp ignores empty lines after them."""
    return tail[-4:] == b"\r\n\r\n" and tail != b"\r\n\r\n\r\n"


def _find_trailers(before: bytes, data: bytes) -> int:
    """Where unfinished trailers begin in the last piece; its length: nowhere."""
    text, skipped = _joined(before, data)
    found = _BEGUN.search(text, max(0, len(text) - MAX_TRAILER_BYTES))
    return max(found.start(1) - skipped, 0) if found is not None else len(data)


def _filter_trailers(before: bytes, data: bytes, fields: HeaderTable) -> bytes:
    """The end of a body with the trailers that may be passed on."""
    text, skipped = _joined(before, data)
    found = _WHOLE.search(text, max(0, len(text) - MAX_TRAILER_BYTES))
    if found is None or found.start(1) < skipped:
        raise MalformedMessageError("Part of the trailers was passed on unseen.")
    kept = fields.trailers(found[1].split(b"\r\n")[:-1])
    return text[skipped : found.start(1)] + b"".join(line + b"\r\n" for line in kept) + b"\r\n"


def _joined(before: bytes, data: bytes) -> tuple[bytes, int]:
    """With the last bytes of the piece before; where there is none, a line begins."""
    return (before + data, len(before)) if before else (b"\n" + data, 1)
