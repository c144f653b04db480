"""The head of an answer: checked, and sorted into what is passed on and what is acted on."""

from __future__ import annotations

import re
from typing import Final

from ..exchange import CHUNKED
from .headers import (
    MAX_CACHED_LINE_BYTES,
    ROLE_CONNECTION,
    ROLE_CONTENT_LENGTH,
    ROLE_HOP,
    ROLE_LOAD_REPORT,
    ROLE_RESERVED,
    ROLE_TRACE,
    ROLE_TRAILER,
    ROLE_TRANSFER_ENCODING,
    ROLE_UPGRADE,
    Header,
    HeaderTable,
    MalformedMessageError,
    tokens,
)

_KEPT = {b"content-length", b"close", b"keep-alive", b"upgrade"}
_OF_BODIES = {b"content-length", b"trailer"}
UNTIL_CLOSE: Final = -2  # the body ends with the connection
MAX_CACHED_STATUS_LINES = 1024
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")


class StatusLineCache:
    def __init__(self) -> None:
        self.known: dict[bytes, tuple[int, bool, bytes]] = {}

    def learn(self, line: bytes) -> tuple[int, bool, bytes]:
        """Status, whether it is HTTP/1.0, and the line to pass on."""
        match = _STATUS.fullmatch(line)
        if match is None:
            raise MalformedMessageError("The first line is not a status line.")
        passed = b"HTTP/1.1" + line[8:]
        parsed = (int(match[2]), match[1] == b"0", passed if len(line) > 12 else passed + b" ")
        if len(line) <= MAX_CACHED_LINE_BYTES:
            if len(self.known) >= MAX_CACHED_STATUS_LINES:
                self.known.clear()
            self.known[line] = parsed
        return parsed


class ResponseHead:
    __slots__ = ("close", "has_request_id", "http10", "length", "lines", "load_report", "status", "trailers", "upgrade")

    def __init__(self, lines: list[bytes], fields: HeaderTable, statuses: StatusLineCache) -> None:
        parsed = statuses.known.get(lines[0])
        if parsed is None:
            parsed = statuses.learn(lines[0])
        self.status = parsed[0]
        self.http10 = parsed[1]
        self.close = parsed[1]  # the replica closes the connection after this
        self.length = UNTIL_CLOSE
        self.upgrade = b""
        self.has_request_id = False  # it has an x-request-id
        self.trailers = False  # it announces some
        self.load_report = b""  # what the replica says of its load
        self.lines = [parsed[2]]
        special = fields.classify(lines[1:], self.lines)
        if special is not None:
            self._act_on(special)

    def _act_on(self, special: list[Header]) -> None:
        coded = False
        connection: bytes | None = None
        for field in special:
            role = field.role
            if role == ROLE_CONTENT_LENGTH:
                if self.length >= 0:
                    raise MalformedMessageError("There are two content-length headers.")
                self.length = field.number
                self.lines.append(field.line)
            elif role == ROLE_CONNECTION:
                connection = field.value if connection is None else connection + b"," + field.value
            elif role == ROLE_TRANSFER_ENCODING:
                if coded or field.value.lower() != b"chunked":
                    raise MalformedMessageError("The only transfer-encoding understood is chunked.")
                coded = True
            elif role == ROLE_TRACE:
                self.has_request_id = True
                self.lines.append(field.line)
            elif role == ROLE_UPGRADE:
                self.upgrade = field.value
            elif role == ROLE_LOAD_REPORT:
                self.load_report = field.value
            elif role == ROLE_TRAILER:
                self.trailers = True
                self.lines.append(field.line)
            else:
                assert role in (ROLE_HOP, ROLE_RESERVED)
        if coded:
            if self.length >= 0:
                raise MalformedMessageError("There are a content-length and a transfer-encoding.")
            self.length = CHUNKED
        if connection is not None:
            self._connection(connection)
        if coded and self.http10:
            self.close = True  # RFC 9112, 6.1: its framing cannot be trusted any further

    def _connection(self, value: bytes) -> None:
        if value in (b"keep-alive", b"Keep-Alive"):
            self.close = False
            return
        options = tokens(value)
        if b"close" in options:
            self.close = True
        elif b"keep-alive" in options:
            self.close = False
        nominated = set(options) - _KEPT
        if nominated:
            status, *lines = self.lines
            self.lines = [status, *(line for line in lines if line.partition(b":")[0].lower() not in nominated)]

    @property
    def without_body(self) -> list[bytes]:
        """Of an interim answer, which has no body (RFC 9110, 15.2)."""
        return [line for line in self.lines if line.partition(b":")[0].lower() not in _OF_BODIES]
