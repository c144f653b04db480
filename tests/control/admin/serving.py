"""The admin API as a real server on a loop of its own, in a thread, so that any client can be used against it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvloop

from steelyard.config import AdminConfig
from steelyard.control.admin.server import AdminServer

from .fake_operations import FakeOperations

TOKEN = "0123456789abcdef-a-token"
WAIT_TIMEOUT_SECONDS = 30.0


class Served:
    """`do` runs something in the server's thread; `http` asks it."""

    def __init__(self, server: AdminServer, operations: FakeOperations, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.operations = operations
        self.loop = loop
        address = server.address
        transport = httpx.HTTPTransport(uds=address.path) if address.path else None
        self.url = f"http://{address.authority}"
        self.http = httpx.Client(base_url=self.url, transport=transport, timeout=WAIT_TIMEOUT_SECONDS, trust_env=False)

    def do(self, work: Callable[[], Any]) -> Any:
        async def doing() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(doing(), self.loop).result(WAIT_TIMEOUT_SECONDS)


def until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + WAIT_TIMEOUT_SECONDS
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


@contextmanager
def served(operations: FakeOperations | None = None, **admin: Any) -> Iterator[Served]:
    operations = operations or FakeOperations()
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def wait(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(WAIT_TIMEOUT_SECONDS)

    try:
        server = AdminServer(operations, AdminConfig(**{"listen": "127.0.0.1:0", **admin}))
        wait(server.start())
        made = Served(server, operations, loop)
        try:
            with made.http:
                yield made
        finally:
            wait(server.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_TIMEOUT_SECONDS)
        loop.close()
