"""A small server that does what a test wants, in the loop of the test; and a prober that tells a list."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from steelyard.addresses import Address
from steelyard.config import HealthConfig, LoadMetricsConfig, ReplicaConfig, ReplicaTlsConfig
from steelyard.control.fleet.registry import ReplicaKey
from steelyard.control.health.probe import ProbeTarget
from steelyard.control.health.prober import Prober
from steelyard.core.replica import Event
from tests.harness.processes import free_port


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Server:
    """`answers` has what is said to each path: a status, or bytes as they are, or something to await first.

    Whatever has no answer is a 404. `frozen`: connections are taken, nothing is answered.
    """

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {f"/{path}": answer for path, answer in answers.items()}
        self.asked: list[Asked] = []
        self.frozen = False
        self.instance = ""
        self.port = 0
        self.path = ""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"unix:{self.path}" if self.path else f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> Address:
        return Address(path=self.path) if self.path else Address("127.0.0.1", self.port)

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    async def start(self, *, path: str = "", tls: ssl.SSLContext | None = None) -> Server:
        """On the port it had before, if it had one."""
        self.path = path
        if path:
            self._server = await asyncio.start_unix_server(self._serve, path)
        else:
            self.port = self.port or free_port()  # none that the kernel gives to others while we are away
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=tls, backlog=1024)
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            asked = await self._read(reader)
            self.asked.append(asked)
            if self.frozen:
                await reader.read()
            else:
                await self._answer(asked, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort() if self.frozen else writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Asked:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        method, path, _ = first.split(" ")
        return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        answer = self.answers.get(asked.path, 404)
        if callable(answer):
            answer = answer(asked)
        if isinstance(answer, Awaitable):
            answer = await answer
        writer.write(answer if isinstance(answer, bytes) else self.reply(answer))
        await writer.drain()

    def reply(self, status: int, body: bytes = b"", **headers: str) -> bytes:
        if self.instance:
            headers["steelyard_instance"] = self.instance
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {status} Words\r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode() + body


@asynccontextmanager
async def serving(*, path: str = "", tls: ssl.SSLContext | None = None, **answers: Any) -> AsyncIterator[Server]:
    server = await Server(**answers).start(path=path, tls=tls)
    try:
        yield server
    finally:
        await server.stop()


def target(
    url: str,
    *,
    model: str = "m",
    dialect: str | None = None,
    ready: str = "",
    id: str = "",
    load: LoadMetricsConfig | None = None,
    tls: ReplicaTlsConfig | None = None,
    **settings: Any,
) -> ProbeTarget:
    """One that is probed often; at `/health`, unless there is a dialect to ask."""
    if dialect is None and not settings.get("command"):
        settings.setdefault("path", "/health")
    often = {"interval": 0.05, "loading_interval": 0.02, "timeout": 20.0, **settings}
    replica = ReplicaConfig(url=url, ready=ready, id=id)
    return ProbeTarget(
        model, replica, dialect or "", HealthConfig(**often), load or LoadMetricsConfig(), tls or ReplicaTlsConfig()
    )


class Watcher:
    """Follows targets and keeps what is told."""

    def __init__(self, *targets: ProbeTarget, busy: Callable[[ReplicaKey], bool] = lambda key: False) -> None:
        self.changes: list[tuple[ReplicaKey, Event, str]] = []
        self.prober = Prober(lambda *change: self.changes.append(change), self._progress)
        self._busy = busy
        self.follow(*targets)

    async def _progress(self, key: ReplicaKey) -> bool:
        return self._busy(key)

    def follow(self, *targets: ProbeTarget) -> None:
        self.prober.set_targets({target.key: target for target in targets})

    def events(self, key: ReplicaKey | None = None) -> list[str]:
        return [event.value for who, event, _ in self.changes if key in (None, who)]

    @property
    def last(self) -> str:
        return self.changes[-1][1].value if self.changes else ""

    @property
    def reason(self) -> str:
        return self.changes[-1][2] if self.changes else ""


@asynccontextmanager
async def watching(*targets: ProbeTarget, **options: Any) -> AsyncIterator[Watcher]:
    watcher = Watcher(*targets, **options)
    try:
        yield watcher
    finally:
        await watcher.prober.close()
        tasks = [task for task in asyncio.all_tasks() if task.get_coro().__qualname__.startswith("Prober.")]
        assert not tasks
