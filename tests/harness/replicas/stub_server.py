"""A replica that does what it is told, byte by byte; a process of its own, so that it can be stopped and killed.

Run by `stub.StubReplica`. Commands come in on standard input, what happens goes out on standard output, one JSON
object a line. A request brings its own script in the header `x-stub` (base64 of JSON), or gets the script set for its
path, or the one set for all.
A script is a list of steps `[name, argument…]`; the methods `do_…` below are the steps.

Requests are read strictly: what no client may send is reported as `malformed`, so every test is a test of that too.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import signal
import socket
import ssl
import struct
import sys
import time
from collections import defaultdict
from itertools import count
from typing import Any

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
REQUEST_LINE = re.compile(rf"({TOKEN}) ([\x21-\x7e]+) HTTP/1\.([01])")
FIELD = re.compile(rf"({TOKEN}):[ \t]*([\x20-\x7e\x80-\xff\t]*?)[ \t]*")
CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\r\n]*)?\r\n")
BLOCK_BYTES = 1 << 16
PATTERN = bytes(range(256)) * (BLOCK_BYTES // 256)
REPLY: list[list[Any]] = [["body"], ["reply"]]


class Malformed(Exception):
    """The peer sent what no HTTP/1.1 client may send."""


class Closed(Exception):
    """This end closed the connection, as its script said."""


def emit(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class Wire(asyncio.StreamReaderProtocol):
    """Tells at once when the other side leaves, and ends what the script is doing for it."""

    number = 0
    task: asyncio.Task[None] | None = None

    def eof_received(self) -> bool | None:
        emit("eof", conn=self.number)
        self.left()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        emit("lost", conn=self.number, error=type(exc).__name__ if exc else "")
        self.left()
        super().connection_lost(exc)

    def left(self) -> None:
        # One more turn of the loop, for what the other side said before it left.
        if self.task is not None:
            asyncio.get_running_loop().call_soon(self.task.cancel)
            self.task = None


class Exchange:
    """One request on one connection, and the script that answers it."""

    def __init__(self, stub: Stub, conn: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stub = stub
        self.conn = conn
        self.reader = reader
        self.writer = writer
        self.id = ""
        self.path = ""
        self.fields: list[tuple[str, str]] = []
        self.length = 0
        self.chunked = False
        self.body_read = False

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key == name]

    async def head(self) -> bool:
        """Read the head of a request; False: the peer closed before one."""
        try:
            raw = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as partial:
            if partial.partial:
                emit("partial", conn=self.conn, raw=partial.partial.decode("latin-1")[:2000])
            return False
        lines = raw[:-4].decode("latin-1").split("\r\n")
        first = REQUEST_LINE.fullmatch(lines[0])
        if first is None:
            raise Malformed(f"request line {lines[0]!r}")
        for line in lines[1:]:
            field = FIELD.fullmatch(line)
            if field is None:
                raise Malformed(f"header line {line!r}")
            self.fields.append((field[1].lower(), field[2]))
        self._framing(first[3])
        self.path = first[2].partition("?")[0]
        self.id = ",".join(self.values("x-test-id"))
        self.stub.active += 1
        emit(
            "request",
            conn=self.conn,
            id=self.id,
            method=first[1],
            target=first[2],
            version=f"1.{first[3]}",
            headers=self.fields,
            active=self.stub.active,
        )
        return True

    def _framing(self, minor: str) -> None:
        lengths, codings = self.values("content-length"), self.values("transfer-encoding")
        if minor == "1" and len(self.values("host")) != 1:
            raise Malformed(f"{len(self.values('host'))} Host headers")
        if lengths and codings:
            raise Malformed("both Content-Length and Transfer-Encoding")
        if len(lengths) > 1 or not all(re.fullmatch("[0-9]+", length) for length in lengths):
            raise Malformed(f"Content-Length {lengths}")
        if codings and [coding.lower() for coding in codings] != ["chunked"]:
            raise Malformed(f"Transfer-Encoding {codings}")
        self.length = int(lengths[0]) if lengths else 0
        self.chunked = bool(codings)

    async def run(self, script: list[list[Any]]) -> None:
        """Do what the script says; like any good server, stop when the other side has left."""
        try:
            for name, *arguments in script:
                await getattr(self, f"do_{name}")(*arguments)
        finally:
            self.stub.active -= 1
            emit("done", conn=self.conn, id=self.id)
        if not self.body_read:  # stay in step with the peer
            await self.do_body()

    # ------------------------------------------------------------------ the steps: the request

    async def do_body(self, at_once: int = BLOCK_BYTES) -> None:
        """Read the whole body of the request."""
        digest, length, trailers = hashlib.sha256(), 0, []
        self.body_read = True
        if "100-continue" in self.values("expect"):
            await self.do_send("HTTP/1.1 100 Continue\r\n\r\n")
        if self.chunked:
            while size := await self._chunk_size():
                data = await self.reader.readexactly(size + 2)
                if data[-2:] != b"\r\n":
                    raise Malformed(f"chunk of {size} ends in {data[-2:]!r}")
                digest.update(data[:-2])
                length += size
            while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
                field = FIELD.fullmatch(line[:-2].decode("latin-1"))
                if field is None:
                    raise Malformed(f"trailer line {line!r}")
                trailers.append((field[1].lower(), field[2]))
        else:
            while length < self.length:
                data = await self.reader.read(min(at_once, self.length - length))
                if not data:
                    raise asyncio.IncompleteReadError(b"", self.length - length)
                digest.update(data)
                length += len(data)
        emit(
            "body", conn=self.conn, id=self.id, length=length, sha=digest.hexdigest(), trailers=trailers,
            chunked=self.chunked,
        )  # fmt: skip

    async def _chunk_size(self) -> int:
        line = await self.reader.readuntil(b"\n")
        match = CHUNK_LINE.fullmatch(line)
        if match is None:
            raise Malformed(f"chunk line {line!r}")
        return int(match[1], 16)

    # ------------------------------------------------------------------ the steps: the answer

    async def do_send(self, text: str) -> None:
        """Send these bytes (latin-1)."""
        self.writer.write(text.encode("latin-1"))
        await self.writer.drain()

    async def do_reply(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """A plain answer that says who answered what."""
        body = json.dumps({"replica": self.stub.name, "id": self.id}).encode()
        fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.writer.write(f"HTTP/1.1 {status} Stub\r\n{lines}\r\n".encode("latin-1") + body)
        await self.writer.drain()

    async def do_fill(self, amount: int, chunked: bool = False) -> None:
        """Send so many bytes of a known pattern, telling after each MiB."""
        sent = 0
        while sent < amount:
            block = PATTERN[: min(BLOCK_BYTES, amount - sent)]
            self.writer.write(b"%x\r\n%s\r\n" % (len(block), block) if chunked else block)
            await self.writer.drain()
            sent += len(block)
            if not sent % (1 << 20) or sent == amount:
                emit("filled", conn=self.conn, id=self.id, sent=sent)

    async def do_sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def do_block(self, seconds: float) -> None:
        """Work as a server of one thread does: nobody else is answered meanwhile."""
        time.sleep(seconds)

    async def do_gate(self, name: str) -> None:
        """Go on when the test opens this gate."""
        emit("waiting", conn=self.conn, id=self.id, gate=name)
        await self.stub.gates[name].wait()

    async def do_echo(self) -> None:
        """A tunnel: send back what comes until the other side ends."""
        self.body_read = True
        while data := await self.reader.read(BLOCK_BYTES):
            self.writer.write(data)
            await self.writer.drain()
        raise Closed

    async def do_until_gone(self) -> None:
        """Say nothing until the other side has left."""
        while await self.reader.read(BLOCK_BYTES):
            pass
        raise Closed

    async def do_close(self) -> None:
        raise Closed

    async def do_half_close(self) -> None:
        self.writer.write_eof()

    async def do_reset(self) -> None:
        """Close with a RST."""
        sock = self.writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        raise Closed

    async def do_die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def do_doom(self, how: str = "close") -> None:
        """This connection will be closed when the first byte of the next request arrives."""
        self.stub.doomed[self.conn] = how


class Stub:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.name = options["name"]
        self.script = options.get("script") or REPLY
        self.paths: dict[str, list[list[Any]]] = dict(options.get("paths", {}))
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.active = 0
        self.numbers = count(1)
        self.doomed: dict[int, str] = {}
        self.writers: dict[int, asyncio.StreamWriter] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        options, loop = self.options, asyncio.get_running_loop()
        context = None
        if "certificate" in options:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options["certificate"], options["key"])
            if options.get("client_ca"):
                context.load_verify_locations(options["client_ca"])
                context.verify_mode = ssl.CERT_REQUIRED
        if "path" in options:
            await loop.create_unix_server(self.protocol, options["path"], ssl=context)
            emit("listening", port=0)
        else:
            server = await loop.create_server(
                self.protocol, options["host"], options["port"], ssl=context, backlog=1024
            )
            emit("listening", port=server.sockets[0].getsockname()[1])
        await self.obey()

    def protocol(self) -> Wire:
        reader = asyncio.StreamReader(limit=1 << 18)
        wire = Wire(reader, self.accept)
        wire.number = next(self.numbers)
        return wire

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = writer.transport.get_protocol()
        assert isinstance(wire, Wire)
        conn = wire.number
        self.writers[conn] = writer
        emit("open", conn=conn)
        wire.task = task = asyncio.ensure_future(self.connection(conn, reader, writer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def connection(self, conn: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not reader.at_eof():
                if conn in self.doomed:
                    await self.doom(conn, reader, writer)
                exchange = Exchange(self, conn, reader, writer)
                if not await exchange.head():
                    break
                await exchange.run(self.script_of(exchange))
        except Malformed as problem:
            emit("malformed", conn=conn, reason=str(problem))
        except (Closed, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except Exception as problem:
            emit("broken", conn=conn, reason=repr(problem))
        finally:
            self.writers.pop(conn, None)
            if not writer.transport.is_closing():
                writer.close()

    async def doom(self, conn: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1):
            emit("doomed", conn=conn)
            if self.doomed[conn] == "reset":
                await Exchange(self, conn, reader, writer).do_reset()
        raise Closed

    def script_of(self, exchange: Exchange) -> list[list[Any]]:
        own = exchange.values("x-stub")
        if not own or self.options.get("deaf"):
            return self.paths.get(exchange.path, self.script)
        script: list[list[Any]] = json.loads(base64.b64decode(own[0]))
        return script

    # ------------------------------------------------------------------ commands

    async def obey(self) -> None:
        reader = asyncio.StreamReader(limit=1 << 22)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            name, *arguments = json.loads(line)
            getattr(self, f"on_{name}")(*arguments)
            emit("obeyed", command=name)

    def on_script(self, script: list[list[Any]] | None) -> None:
        self.script = script or REPLY

    def on_path(self, path: str, script: list[list[Any]]) -> None:
        self.paths[path] = script
        emit("told", path=path)

    def on_open(self, gate: str) -> None:
        self.gates[gate].set()

    def on_nothing(self) -> None:
        """Just to be answered after what came before."""

    def on_close_idle(self) -> None:
        """Close every connection, as servers do with those unused."""
        for writer in list(self.writers.values()):
            writer.close()


if __name__ == "__main__":
    asyncio.run(Stub(json.loads(sys.argv[1])).serve())
