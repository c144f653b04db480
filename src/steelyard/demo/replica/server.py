"""HTTP/1.1 for a demo replica: connections, and one thread that computes for all of them, one request at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import cast

import httptools

from .endpoints import Endpoints, StatusAndBody, error_body

MAX_BODY_BYTES = 1 << 20
EMBEDDINGS_PATH = "/v1/embeddings"
MAX_PIPELINED_REQUESTS = 16  # requests on one connection that wait for those before them


class Server:
    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self.thread = ThreadPoolExecutor(1, "model")

    async def listen(self, port: int) -> int:
        """On this machine only. Returns the port, which the kernel chooses if it is 0."""
        self._server = await asyncio.get_running_loop().create_server(lambda: Connection(self), "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])


class Connection(asyncio.Protocol):
    """Requests are answered in the order they come."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[tuple[str, str, bytes, bool]] = deque()
        self._work: asyncio.Future[StatusAndBody] | None = None
        self._refusal: StatusAndBody | None = None  # the last answer on this connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are such, but do not say so

    def connection_lost(self, problem: Exception | None) -> None:
        self._waiting.clear()
        if self._work is not None:
            self._work.cancel()  # if the model has not begun with it, it never will

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(400, "This is no request of HTTP/1.1.")

    # ------------------------------------------------------------------ what the parser calls

    def on_message_begin(self) -> None:
        self._url = b""
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BODY_BYTES:
            self._refuse(413, f"A body has at most {MAX_BODY_BYTES} bytes.")

    def on_message_complete(self) -> None:
        if self._refusal is not None:
            return
        path = self._url.partition(b"?")[0].decode("latin-1")
        method = self._parser.get_method().decode("latin-1")
        stay = self._parser.should_keep_alive() and method != "HEAD"  # to which no body would be expected
        self._waiting.append((method, path, bytes(self._body), stay))
        if len(self._waiting) >= MAX_PIPELINED_REQUESTS:
            self._transport.pause_reading()
        self._go_on()

    # ------------------------------------------------------------------ answers

    def _go_on(self) -> None:
        while self._waiting and self._work is None and not self._transport.is_closing():
            method, path, body, stay = self._waiting.popleft()
            endpoints = self._server.endpoints
            if method == "POST" and path == EMBEDDINGS_PATH:
                loop = asyncio.get_running_loop()
                self._work = loop.run_in_executor(self._server.thread, endpoints.answer, method, path, body)
                self._work.add_done_callback(lambda work, stay=stay: self._done(work, stay))  # type: ignore[misc]
            else:
                self._write(endpoints.answer(method, path, body), stay)
        if self._waiting or self._transport.is_closing():
            return
        if self._refusal is None:
            self._transport.resume_reading()
        elif self._work is None:
            self._write(self._refusal, stay=False)

    def _done(self, work: asyncio.Future[StatusAndBody], stay: bool) -> None:
        self._work = None
        if not work.cancelled():
            self._write(work.result(), stay)
            self._go_on()

    def _refuse(self, status: int, sentence: str) -> None:
        """After the answers that are due, close: what follows on this connection cannot be understood."""
        if self._refusal is None:
            self._refusal = error_body(status, sentence)
            self._transport.pause_reading()
            self._go_on()

    def _write(self, answer: StatusAndBody, stay: bool) -> None:
        status, body = answer
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
        ]
        if not stay:
            lines.append("connection: close")
        self._transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        if not stay:
            self._transport.close()
