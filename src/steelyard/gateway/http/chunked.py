"""Bodies in chunks (RFC 9112, 7.1), read strictly: a size in hex digits, CR LF, nothing that could be read two ways.

Written here because llhttp does not tell the end of the body to the byte, where the next request begins;
tests/gateway/http/test_chunked.py compares the two. Framing is bounded as in Go's net/http since CVE-2023-39326: above
16 bytes and twice its data a chunk, it adds up to at most MAX_EXCESS_FRAMING_BYTES.
"""

from __future__ import annotations

import re
from typing import Final

from .headers import MalformedMessageError, parse_line

MAX_LINE_BYTES: Final = 4096  # of a chunk's size with its extensions, or of a trailer
MAX_TRAILER_LINES: Final = 64
FREE_FRAMING_BYTES: Final = 16  # bytes of a chunk
MAX_EXCESS_FRAMING_BYTES: Final = 16 << 10
UNLIMITED_BYTES: Final = 1 << 60
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
SIZE_LINE, DATA, DATA_END, TRAILERS, DONE = range(5)
_DIGITS = [b"%c" % digit for digit in b"0123456789abcdefABCDEF"]
# Sizes of one or two digits, as they are written. Not 0, which ends the body.
_SMALL = {a + b: int(a + b, 16) for a in (b"", *_DIGITS) for b in _DIGITS if int(a + b, 16)}


class ChunkOverheadError(MalformedMessageError):
    """The framing of a body's chunks is far larger than its data."""


class ChunkedReader:
    """Takes the bytes of one chunked body as they come; `pieces` is its content, `trailers` what follows it."""

    __slots__ = ("_excess", "_held", "_left", "_state", "done", "pieces", "trailers")

    def __init__(self) -> None:
        self._state = SIZE_LINE
        self._left = 0  # bytes of the current chunk still to come
        self._held = b""  # part of a line
        self._excess = 0  # bytes of framing above what is free
        self.done = False
        self.pieces: list[bytes] | None = None  # content is collected only if this is set to a list
        self.trailers: list[bytes] = []

    def feed(self, data: bytes, at: int = 0, most: int = UNLIMITED_BYTES) -> int:
        """Reads on from `at` to the end of the data, of the body, or of `most` chunks; returns where that is.
        Raises MalformedMessageError."""
        size = len(data)
        while at < size:
            state = self._state
            if state == DATA:
                end = at + self._left
                if end > size:
                    self._left = end - size
                    end = size
                else:
                    self._state = DATA_END
                if self.pieces is not None:
                    self.pieces.append(data[at:end])
                at = end
                continue
            if state == SIZE_LINE and not self._held:
                if most <= 0:
                    return at
                most -= 1
                if not self._excess:
                    end = self._small_chunk(data, at)
                    if end:
                        at = end
                        continue
            end = data.find(b"\n", at)
            if end < 0:
                self._held += data[at:]
                if len(self._held) > MAX_LINE_BYTES:
                    raise MalformedMessageError("A line between chunks is too long.")
                return size
            line = data[at:end]
            if self._held:
                line = self._held + line
                self._held = b""
            if len(line) > MAX_LINE_BYTES:
                raise MalformedMessageError("A line between chunks is too long.")
            if line[-1:] != b"\r":
                raise MalformedMessageError("Lines end with CR and LF, not with LF alone.")
            at = end + 1
            self._line(line[:-1])
            if self._state == DONE:
                self.done = True
                return at
        return at

    def _small_chunk(self, data: bytes, at: int) -> int:
        """The end of a small chunk that is all there; 0: it is none. The fast way: clients may send a million."""
        end = data.find(b"\r\n", at, at + 4)
        if end < 0:
            return 0
        length = _SMALL.get(data[at:end])
        if length is None:
            return 0
        begin = end + 2
        end = begin + length
        if data[end : end + 2] != b"\r\n":
            return 0
        if self.pieces is not None:
            self.pieces.append(data[begin:end])
        return end + 2

    def _line(self, line: bytes) -> None:
        if self._state == SIZE_LINE:
            match = _SIZE.fullmatch(line)
            if match is None:
                raise MalformedMessageError("A chunk's size is not a hexadecimal number.")
            self._left = int(match[1], 16)
            self._excess = max(0, self._excess + len(line) + 4 - FREE_FRAMING_BYTES - 2 * self._left)
            if self._excess > MAX_EXCESS_FRAMING_BYTES:
                raise ChunkOverheadError("The framing of the body's chunks is far larger than its data.")
            self._state = DATA if self._left else TRAILERS
        elif self._state == DATA_END:
            if line:
                raise MalformedMessageError("A chunk is longer than its stated size.")
            self._state = SIZE_LINE
        elif line:
            parse_line(line)
            self.trailers.append(line)  # `HeaderTable.trailers` says which are passed on
            if len(self.trailers) > MAX_TRAILER_LINES:
                raise MalformedMessageError("There are too many trailers.")
        else:
            self._state = DONE
