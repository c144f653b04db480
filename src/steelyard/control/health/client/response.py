"""One HTTP/1.1 response on a connection of its own; and requests and responses in words."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import httptools

from ....addresses import Address
from ....protocols.health import ServerRequest, json_object
from ....units import format_size
from .errors import InvalidResponseError, ReplicaRequestError, classify_error

MAX_HEAD_BYTES = 64 << 10
MAX_MESSAGE_CHARACTERS = 200  # of a server's own words
MAX_INSTANCE_BYTES = 128
INSTANCE_HEADER = b"steelyard-instance"
FRAMING_HEADER_NAMES = (b"content-length", b"transfer-encoding")


class ProbeResponse(NamedTuple):
    status: int
    headers: dict[bytes, bytes]  # names in lower case
    body: bytes

    @property
    def instance(self) -> str:
        """The server process's name for itself; empty: it gives none."""
        return self.headers.get(INSTANCE_HEADER, b"")[:MAX_INSTANCE_BYTES].decode("latin-1")


def describe_request(method: str, path: str) -> str:
    """Without the query, which may hold secrets."""
    return f"{method} {path.partition('?')[0]}"


def describe_response(request: ServerRequest, response: ProbeResponse) -> str:
    text = f"answers {response.status} to {describe_request(request.method, request.path)}"
    if 200 <= response.status < 300:
        return text
    said = json_object(response.body)
    reason = said.get("reason") or said.get("error") or said.get("message") or said.get("detail")
    return f"{text}: {printable_line(reason)}" if isinstance(reason, str) else text


def printable_line(text: str) -> str:
    """Untrusted text as one line of bounded length."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else "\ufffd" for c in line[:MAX_MESSAGE_CHARACTERS])


class ResponseReader(asyncio.Protocol):
    """Sends `request` once connected; `done` then holds the response or a ReplicaRequestError."""

    def __init__(self, address: Address, request: bytes, max_bytes: int, *, truncate: bool = False) -> None:
        self.done: asyncio.Future[ProbeResponse] = asyncio.get_running_loop().create_future()
        self._address = address
        self._request = request
        self._max_bytes = max_bytes
        self._truncate = truncate
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._received = 0
        self._headers: dict[bytes, bytes] = {}
        self._status = 0  # 0: the head is incomplete
        self._body = bytearray()

    @property
    def missing(self) -> str:
        """What has not happened yet, for the message of a timeout."""
        if self._transport is None:
            return "no connection"
        return "no end of its answer" if self._received else "no answer"

    def end(self) -> None:
        """Does not wait for a TLS closing handshake."""
        if self._transport is not None:
            self._transport.abort()
        self.done.cancel()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.done.done():
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(InvalidResponseError("its answer is not HTTP/1.1"))
        if self._received > MAX_HEAD_BYTES and not self._status:
            self._fail(InvalidResponseError(f"the head of its answer is longer than {format_size(MAX_HEAD_BYTES)}"))

    def eof_received(self) -> None:
        self.connection_lost(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if self._status and error is None and not any(name in self._headers for name in FRAMING_HEADER_NAMES):
            self.on_message_complete()  # the body ends with the connection (RFC 9112, section 6.3)
        elif self._received:
            self._fail(InvalidResponseError("hangs up before its answer ends"))
        elif error is None or isinstance(error, ConnectionError):
            self._fail(InvalidResponseError("hangs up without an answer"))
        else:
            self._fail(classify_error(error, self._address))

    def _fail(self, error: ReplicaRequestError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
            if self._request.startswith(b"HEAD "):
                self.on_message_complete()
        else:  # an interim response: the final one follows
            self._headers.clear()

    def on_body(self, data: bytes) -> None:
        room = self._max_bytes - len(self._body)
        if len(data) <= room:
            self._body += data
        elif self._truncate:
            self._body += data[:room]
        else:
            self._fail(InvalidResponseError(f"its answer is longer than {format_size(self._max_bytes)}"))

    def on_message_complete(self) -> None:
        if self._status and not self.done.done():
            self.done.set_result(ProbeResponse(self._status, self._headers, bytes(self._body)))
