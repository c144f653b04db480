"""One answer over HTTP/1.1, as it comes in on a connection of its own."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import httptools

from ....addresses import Address
from ....units import format_size
from .errors import InvalidResponseError, ReplicaRequestError, classify_error

MAX_HEAD_BYTES = 64 << 10
FRAMING_HEADER_NAMES = (b"content-length", b"transfer-encoding")


class ProbeResponse(NamedTuple):
    status: int
    headers: dict[bytes, bytes]  # names in lower case
    body: bytes


class ResponseReader(asyncio.Protocol):
    """Sends `request` when the connection is there, and keeps the answer in `done`.

    A body longer than `limit` is an error, or, with `cut`, read to its end without being kept.
    """

    def __init__(self, address: Address, request: bytes, limit: int, *, cut: bool = False) -> None:
        self.done: asyncio.Future[ProbeResponse] = asyncio.get_running_loop().create_future()
        self.connected = False
        self.begun = False
        self._address = address
        self._request = request
        self._limit = limit
        self._cut = cut
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._received = 0
        self._headers: dict[bytes, bytes] = {}
        self._status = 0  # 0: the head is not complete
        self._body = bytearray()

    def end(self) -> None:
        """Whatever has come of it: nothing is left behind. A closing handshake of TLS is not waited for."""
        if self._transport is not None:
            self._transport.abort()
        self.done.cancel()

    # ------------------------------------------------------------------ the connection

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.connected = True
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.done.done():
            return
        self.begun = True
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(InvalidResponseError("its answer is not HTTP/1.1"))
        if self._received > MAX_HEAD_BYTES and not self._status:
            self._fail(InvalidResponseError(f"the head of its answer is longer than {format_size(MAX_HEAD_BYTES)}"))

    def eof_received(self) -> None:
        self._over(None)

    def connection_lost(self, problem: Exception | None) -> None:
        self._over(problem)

    def _over(self, problem: Exception | None) -> None:
        if self.done.done():
            return
        if self._status and problem is None and not any(name in self._headers for name in FRAMING_HEADER_NAMES):
            self.on_message_complete()  # it ends with the connection (RFC 9112, section 6.3)
        elif self.begun:
            self._fail(InvalidResponseError("hangs up before its answer ends"))
        elif problem is None or isinstance(problem, ConnectionError):
            self._fail(InvalidResponseError("hangs up without an answer"))
        else:
            self._fail(classify_error(problem, self._address))

    def _fail(self, problem: ReplicaRequestError) -> None:
        if not self.done.done():
            self.done.set_exception(problem)

    # ------------------------------------------------------------------ llhttp

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
            if self._request.startswith(b"HEAD "):
                self.on_message_complete()
        else:  # an interim answer: the real one follows
            self._headers.clear()

    def on_body(self, data: bytes) -> None:
        room = self._limit - len(self._body)
        if len(data) <= room:
            self._body += data
        elif self._cut:
            self._body += data[:room]
        else:
            self._fail(InvalidResponseError(f"its answer is longer than {format_size(self._limit)}"))

    def on_message_complete(self) -> None:
        if self._status and not self.done.done():
            self.done.set_result(ProbeResponse(self._status, self._headers, bytes(self._body)))
