"""A small HTTP client that keeps its connections."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

MAX_CONNECTIONS = 200  # connections: when all are busy, requests wait here, and their wait counts


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """For one server that answers with a content-length, as replicas and the gateway do."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._idle: list[Streams] = []
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)

    async def post(self, path: str, body: bytes) -> Reply:
        return await self.ask("POST", path, body)

    async def ask(self, method: str, path: str, body: bytes = b"") -> Reply:
        """OSError or EOFError: there was no whole answer."""
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        async with self._places:
            reader, writer = await self._connection()
            try:
                writer.write(head.encode() + body)
                reply = await _read(reader)
            except BaseException:
                writer.transport.abort()
                raise
            if reply.headers.get("connection") == "close":
                writer.close()
            else:
                self._idle.append((reader, writer))
            return reply

    async def close(self) -> None:
        """What is idle, and that is all once every request is over."""
        for _, writer in self._idle:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in self._idle), return_exceptions=True)
        self._idle.clear()

    async def _connection(self) -> Streams:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port)


async def _read(reader: asyncio.StreamReader) -> Reply:
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Reply(int(status.split()[1]), headers, body)
