"""A client that sends exact bytes and reads strictly: what no server may send is an error, no end is `Truncated`."""

from __future__ import annotations

import re
import select
import socket
import ssl
import struct
from collections.abc import Generator
from itertools import count
from types import TracebackType
from typing import Any
from uuid import uuid4

from .replicas import scripts
from .replicas.stub import Script
from .waiting import WAIT_TIMEOUT_SECONDS

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2}) [\x20-\x7e\x80-\xff\t]*")
FIELD = re.compile(rf"({TOKEN}):[ \t]*([\x20-\x7e\x80-\xff\t]*?)[ \t]*")
CHUNK = re.compile(r"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\r\n]*)?")
_numbers = count(1)
_run = uuid4().hex[:8]

Address = tuple[str, int] | str  # a str: the path of a Unix socket


class Truncated(Exception):
    """The connection ended in the middle of an answer; `response` is what came."""

    def __init__(self, response: Response, reset: bool) -> None:
        super().__init__(f"{'reset' if reset else 'closed'} after {response!r}")
        self.response = response
        self.reset = reset


class NoAnswer(Truncated):
    """The connection ended before the first byte of an answer."""


class BadAnswer(AssertionError):
    """The server sent what no server may send."""


def new_id(prefix: str = "r") -> str:
    return f"{prefix}-{_run}-{next(_numbers)}"


def request(
    method: str = "POST",
    target: str = "/work",
    *,
    id: str = "",
    script: Script | None = None,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    chunks: list[bytes] | None = None,
    trailers: dict[str, str] | None = None,
    version: str = "1.1",
    host: str = "model.test",
) -> bytes:
    """The bytes of a request. `chunks`: a chunked body; `script`: what the stub should do."""
    given = {"host": host, "x-test-id": id or new_id()}
    if script is not None:
        given |= scripts.header(script)
    if chunks is not None:
        given["transfer-encoding"] = "chunked"
        pieces = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in chunks]
        body = b"".join([*pieces, b"0\r\n", scripts.fields(trailers).encode(), b"\r\n"])
    elif (body or method in ("POST", "PUT", "PATCH")) and "transfer-encoding" not in (headers or {}):
        given["content-length"] = str(len(body))
    given |= headers or {}
    return f"{method} {target} HTTP/{version}\r\n{scripts.fields(given)}\r\n".encode("latin-1") + body


class Response:
    """One answer, taken in piece by piece (no I/O here): `feed` it bytes, tell it `end` of the connection."""

    def __init__(self, method: str = "GET") -> None:
        self.method = method
        self.informational: list[tuple[int, dict[str, str]]] = []
        self.version = ""
        self.status = 0
        self.fields: list[tuple[str, str]] = []
        self.body = bytearray()
        self.pieces: list[bytes] = []  # chunks as they were framed
        self.trailers: dict[str, str] = {}
        self.framing = ""  # none, length, chunked, close
        self.head_done = False
        self.complete = False
        self.begun = False
        self._buffer = bytearray()
        self._work = self._read()
        next(self._work)

    def __repr__(self) -> str:
        return f"<{self.status or 'no status'}, {len(self.body)} bytes, {bytes(self.body[:300])!r}>"

    @property
    def headers(self) -> dict[str, str]:
        """Several of one name are joined by commas, in order."""
        joined: dict[str, str] = {}
        for name, value in self.fields:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return joined

    def feed(self, data: bytes) -> bytes:
        """Take in bytes; returns those after the end of this answer."""
        self.begun = True
        self._buffer += data
        if not self.complete:
            try:
                next(self._work)
            except StopIteration:
                self.complete = True
        if not self.complete:
            return b""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def end(self, reset: bool = False) -> None:
        """The connection ended: fine only where that ends the answer."""
        if self.framing == "close" and not reset:
            self.complete = True
        elif not self.complete:
            raise (Truncated if self.begun else NoAnswer)(self, reset)

    # ------------------------------------------------------------------ the machine

    def _read(self) -> Generator[None, None, None]:
        yield
        while True:
            yield from self._head()
            if not 100 <= self.status < 200 or self.status == 101:
                break
            self.informational.append((self.status, self.headers))
            self.fields = []
        self._framing()
        self.head_done = True
        if self.framing == "chunked":
            yield from self._chunks()
        elif self.framing == "length":
            yield from self._exactly(int(self.headers["content-length"]))
        elif self.framing == "close":
            while True:
                self.body += self._buffer
                self._buffer.clear()
                yield

    def _line(self) -> Generator[None, None, str]:
        while (end := self._buffer.find(b"\n")) < 0:
            yield
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        if not line.endswith(b"\r\n"):
            raise BadAnswer(f"a line that does not end in CRLF: {line!r}")
        return line[:-2].decode("latin-1")

    def _head(self) -> Generator[None, None, None]:
        line = yield from self._line()
        first = STATUS_LINE.fullmatch(line)
        if first is None:
            raise BadAnswer(f"not a status line: {line!r}")
        self.version, self.status = f"1.{first[1]}", int(first[2])
        while line := (yield from self._line()):
            field = FIELD.fullmatch(line)
            if field is None:
                raise BadAnswer(f"not a header line: {line!r}")
            self.fields.append((field[1].lower(), field[2]))

    def _framing(self) -> None:
        lengths = [value for name, value in self.fields if name == "content-length"]
        codings = [value.lower() for name, value in self.fields if name == "transfer-encoding"]
        if lengths and codings:
            raise BadAnswer("both Content-Length and Transfer-Encoding")
        if len(lengths) > 1 or not all(re.fullmatch("[0-9]+", length) for length in lengths):
            raise BadAnswer(f"Content-Length {lengths}")
        if codings and (codings != ["chunked"] or self.version == "1.0"):
            raise BadAnswer(f"Transfer-Encoding {codings} in HTTP/{self.version}")
        if self.status in (101, 204) and (lengths or codings):
            raise BadAnswer(f"{self.status} with {lengths or codings}")  # RFC 9110 8.6, RFC 9112 6.1
        if self.method == "HEAD" or self.status in (101, 204, 304):
            self.framing = "none"
        else:
            self.framing = "chunked" if codings else "length" if lengths else "close"

    def _exactly(self, size: int) -> Generator[None, None, None]:
        wanted = len(self.body) + size
        while len(self.body) < wanted:
            missing = wanted - len(self.body)
            self.body += self._buffer[:missing]
            del self._buffer[:missing]
            if len(self.body) < wanted:
                yield

    def _chunks(self) -> Generator[None, None, None]:
        while True:
            line = yield from self._line()
            match = CHUNK.fullmatch(line)
            if match is None:
                raise BadAnswer(f"not a chunk size: {line!r}")
            size = int(match[1], 16)
            if not size:
                break
            start = len(self.body)
            yield from self._exactly(size)
            self.pieces.append(bytes(self.body[start:]))
            if (yield from self._line()):
                raise BadAnswer("a chunk that does not end in CRLF")
        while line := (yield from self._line()):
            field = FIELD.fullmatch(line)
            if field is None:
                raise BadAnswer(f"not a trailer: {line!r}")
            self.trailers[field[1].lower()] = field[2]


class Connection:
    """A blocking client connection. Every wait is bounded."""

    def __init__(
        self,
        address: Address,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str = "localhost",
        timeout: float = WAIT_TIMEOUT_SECONDS,
        receive_buffer: int = 0,
        source: str = "",
    ) -> None:
        """`source`: the address it comes from."""
        if isinstance(address, str):
            self.sock = socket.socket(socket.AF_UNIX)
        else:
            self.sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout)
        try:
            if source:
                self.sock.bind((source, 0))
            self.sock.connect(address)
            if tls is not None:
                self.sock = tls.wrap_socket(self.sock, server_hostname=server_name)
        except BaseException:
            self.sock.close()
            raise
        self._rest = b""

    def __del__(self) -> None:
        """Whoever forgets to close it is a client in a thread that was told to stop: nothing to warn of."""
        self.sock.close()

    # ------------------------------------------------------------------ sending

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def try_send(self, data: bytes) -> bool:
        """Send to a peer that may have gone."""
        try:
            self.sock.sendall(data)
        except (ConnectionError, ssl.SSLError):
            return False
        return True

    # ------------------------------------------------------------------ receiving

    def begin(self, method: str = "GET") -> Response:
        """Read up to the end of the head of the next answer."""
        response = Response(method)
        self.take(response, lambda: response.head_done)
        return response

    def response(self, method: str = "GET") -> Response:
        """Read one whole answer; `Truncated` if it has no end."""
        return self.finish(Response(method))

    def finish(self, response: Response) -> Response:
        self.take(response, lambda: False)
        return response

    def read_body(self, response: Response, marker: bytes) -> None:
        """Read on until the body has `marker` in it."""
        self.take(response, lambda: marker in response.body)
        assert marker in response.body, response

    def take(self, response: Response, enough: Any) -> None:
        while not response.complete and not enough():
            data = self._rest or self._receive(response)
            self._rest = b""
            if data:
                self._rest = response.feed(data)

    def _receive(self, response: Response) -> bytes:
        try:
            data = self.sock.recv(1 << 18)
        except (ConnectionError, ssl.SSLError):
            response.end(reset=True)
            raise AssertionError("unreachable") from None
        except TimeoutError:
            raise AssertionError(f"no more bytes in {self.sock.gettimeout():g} s after {response!r}") from None
        if not data:
            response.end()
        return data

    def read_exactly(self, size: int) -> bytes:
        """Raw bytes, for tunnels."""
        data = self._rest
        self._rest = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            assert more, f"closed after {data!r}"
            data += more
        self._rest = data[size:]
        return data[:size]

    def interim(self) -> int:
        """Read one head, of an interim answer, and no more; its status."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.read_exactly(1)
        first = STATUS_LINE.match(head.decode("latin-1"))
        assert first, head
        return int(first[2])

    def ask(self, method: str = "POST", target: str = "/work", **options: Any) -> Response:
        """Send a request, read the answer."""
        self.send(request(method, target, **options))
        return self.response(method)

    # ------------------------------------------------------------------ ends

    def wait_closed(self, timeout: float = WAIT_TIMEOUT_SECONDS) -> bytes:
        """Read until the other side closes; returns what still came."""
        self.sock.settimeout(timeout)
        data = self._rest
        self._rest = b""
        try:
            while piece := self.sock.recv(1 << 16):
                data += piece
        except (ConnectionError, ssl.SSLError):
            pass
        except TimeoutError:
            raise AssertionError(f"not closed after {timeout:g} s") from None
        return data

    def quiet(self, seconds: float) -> bool:
        """Did nothing come, and no end, for so long?"""
        return not self._rest and not select.select([self.sock], [], [], seconds)[0]

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Leave with a RST."""
        if self.sock.family != socket.AF_UNIX:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def ask(address: Address, method: str = "POST", target: str = "/work", **options: Any) -> Response:
    """One request on a connection of its own."""
    with Connection(address) as connection:
        return connection.ask(method, target, **options)
