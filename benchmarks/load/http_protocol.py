"""The two ends of HTTP/1.1 that the benchmarks need in Python: a server's and a client's side of a connection."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools

from .chat_request import models

MAX_KEPT_BYTES = 1 << 20  # bytes of a body that are kept; of larger ones only the length matters


class HttpConnection(asyncio.Protocol):
    """Collects messages; calls `message(body)` for each."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.parser: Any = None
        self.kept: list[bytes] = []
        self.length = 0  # of the body, so far

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self.kept.clear()
        self.length = 0

    def on_body(self, data: bytes) -> None:
        self.length += len(data)
        if self.length <= MAX_KEPT_BYTES:
            self.kept.append(data)

    def on_message_complete(self) -> None:
        self.message(b"".join(self.kept))

    def message(self, body: bytes) -> None:
        raise NotImplementedError


class ServerConnection(HttpConnection):
    """A POST comes as `message(body)`; `reply` answers it. A GET (health, models) is answered at once."""

    def __init__(self) -> None:
        super().__init__()
        self.parser = httptools.HttpRequestParser(self)
        self.url = b""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.url = b""

    def on_message_complete(self) -> None:
        if self.parser.get_method() == b"GET":
            self.reply(models().encode())
        else:
            super().on_message_complete()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def reply(self, body: bytes, status: str = "200 OK", content_type: str = "application/json") -> None:
        if self.transport.is_closing():
            return
        head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode())
        self.transport.write(body)


class ClientConnection(HttpConnection):
    """Calls `response(status, body)` for each answer, with status None if the connection broke."""

    def __init__(self) -> None:
        super().__init__()
        self.parser = httptools.HttpResponseParser(self)
        self.waiting = False
        self.lost = False

    def send(self, request: bytes) -> None:
        self.waiting = True
        self.transport.write(request)

    def message(self, body: bytes) -> None:
        self.waiting = False
        self.response(self.parser.get_status_code(), body)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self.waiting:
            self.waiting = False
            self.response(None, b"")

    def response(self, status: int | None, body: bytes) -> None:
        raise NotImplementedError
