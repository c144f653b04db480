"""Requests to an ASGI app, step by step and without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import uvloop

from steelyard.replica.http.asgi import App, Message, Receive, Scope, Send

WAIT_TIMEOUT_SECONDS = 30.0  # until a test gives up waiting


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work, 4 * WAIT_TIMEOUT_SECONDS))


async def soon() -> None:
    """Let everybody take the steps that need no waiting."""
    for _ in range(12):
        await asyncio.sleep(0)


def scope(path: str = "/work", method: str = "POST", headers: Iterable[tuple[str, str]] = (), **more: Any) -> Scope:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8001),
        **more,
    }


class Talk:
    """One request: what the client sends is put in, what it gets is kept."""

    def __init__(self, app: App, given: Scope | None = None) -> None:
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.got: list[Message] = []
        self.task = asyncio.ensure_future(self._talk(app, given or scope()))

    async def _talk(self, app: App, given: Scope) -> None:
        async def send(message: Message) -> None:
            self.got.append(message)

        await app(given, self.inbox.get, send)

    def say(self, body: bytes = b"", more: bool = False) -> Talk:
        self.inbox.put_nowait({"type": "http.request", "body": body, "more_body": more})
        return self

    def leave(self) -> Talk:
        self.inbox.put_nowait({"type": "http.disconnect"})
        return self

    async def end(self) -> Talk:
        await asyncio.wait_for(self.task, WAIT_TIMEOUT_SECONDS)
        return self

    @property
    def status(self) -> int:
        return int(self.got[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.got[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got[1:])


async def ask(app: App, path: str = "/work", method: str = "POST", **headers: str) -> Talk:
    names = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return await Talk(app, scope(path, method, names)).say().end()


class Model:
    """An app whose every request waits until the test lets it go."""

    def __init__(self) -> None:
        self.begun: list[Any] = []  # what each request has in its header `x-request-id`, in the order they were called
        self.doing: dict[Any, asyncio.Future[None]] = {}
        self.heard: dict[Any, list[Message]] = {}

    async def __call__(self, given: Scope, receive: Receive, send: Send) -> None:
        if given["type"] != "http":
            return
        name = dict(given["headers"]).get(b"x-request-id", b"").decode()
        self.begun.append(name)
        done = self.doing[name] = asyncio.get_running_loop().create_future()
        await done
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-model", b"m")]})
        await send({"type": "http.response.body", "body": name.encode()})

    def request(self, app: App, name: str) -> Talk:
        return Talk(app, scope(headers=[("x-request-id", name)])).say()
