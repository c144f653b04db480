"""The stranger's walk of docs/architecture.md is what a request does: one is traced through a worker's own parts."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from secrets import token_hex
from types import FrameType
from typing import Any, NamedTuple

import pytest

from steelyard.config import Config, parse_config
from steelyard.core.balancer import Balancer
from steelyard.gateway import exchange
from steelyard.gateway.balancer_process.server import BalancerServer
from steelyard.gateway.proxy.proxy import Proxy
from steelyard.gateway.shared_balancer.channel import MessageChannel
from steelyard.gateway.shared_balancer.client import BalancerClient
from steelyard.gateway.shared_balancer.messages import WorkerMessage
from steelyard.gateway.worker.acceptor import Acceptor
from steelyard.gateway.worker.balancer_link import BalancerLink
from steelyard.gateway.worker.fleet import WorkerFleet
from steelyard.gateway.worker.model_sync import ModelSync

from .test_docs import rows, section

PACKAGE = f"{Path(exchange.__file__).parents[1]}/"
BODY = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
CONFIG = """
models:
  m:
    dialect: openai
    policy: least_work
    slo: {latency: 10s}
    health: {enabled: false}
    replicas: [{url: "http://127.0.0.1:%d"}]
"""


class Call(NamedTuple):
    file: str
    function: str

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]


def call_of(frame: FrameType | None) -> Call | None:
    """None: not of this package, so the event loop called."""
    if frame is None or not frame.f_code.co_filename.startswith(PACKAGE):
        return None
    return Call(frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_qualname)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, asyncio.CancelledError):
        while await reader.readuntil(BODY):
            writer.write(ANSWER)
    writer.close()


class BalancerProcessHere:
    """What the balancer process has, in this process; and a worker's link to it."""

    def __init__(self, config: Config, now: float) -> None:
        self.name = f"steelyard-test-{token_hex(8)}"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0" + self.name)
        self.listener.listen()
        self.listener.setblocking(False)
        self.server = BalancerServer(Balancer(Random(1)), lambda when, now: None)
        ModelSync(self.server).apply(config, {}, now)
        self.client = BalancerClient(0, 1)

    async def connect(self, proxy: Proxy) -> None:
        loop = asyncio.get_running_loop()
        self.link = BalancerLink(proxy.dispatcher, self.client, self.name)
        self.linking = asyncio.create_task(self.link.run())
        connection, _ = await loop.sock_accept(self.listener)
        self.channel = MessageChannel(WorkerMessage, self._received, lambda channel: None)
        made: Any = lambda: self.channel  # noqa: E731
        self.worker = self.server.add_worker(self.channel.send)
        await loop.create_unix_connection(made, sock=connection)
        while not self.client.connected:
            await asyncio.sleep(0)

    def _received(self, channel: MessageChannel, messages: list[Any]) -> None:
        self.server.receive(self.worker, messages, asyncio.get_running_loop().time())

    def idle(self) -> bool:
        return not self.worker.requests

    def close(self) -> None:
        self.linking.cancel()
        self.link.close()
        self.channel.close()
        self.listener.close()


async def trace_request(*, several_workers: bool = False) -> list[tuple[Call, Call | None]]:
    """All calls of one request with their callers, from accept on, after another has made a connection to keep."""
    trace: list[tuple[Call, Call | None]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (called := call_of(frame)) is not None:
            trace.append((called, call_of(frame.f_back)))

    replica = await asyncio.start_server(serve, "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    config = parse_config(CONFIG % replica.sockets[0].getsockname()[1])
    process = BalancerProcessHere(config, loop.time()) if several_workers else None
    proxy = Proxy(loop, process.client if process is not None else Balancer(Random(1)), config)
    WorkerFleet(proxy).apply(config, {}, loop.time())
    if process is not None:
        await process.connect(proxy)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = Acceptor(proxy, [listener])
        acceptor.open()
        for traced in (False, True):
            sys.setprofile(note if traced else None)
            try:
                async with asyncio.timeout(10.0):
                    reader, writer = await asyncio.open_connection(*listener.getsockname())
                    writer.write(REQUEST)
                    await reader.readuntil(b"{}")
                    while process is not None and not process.idle():
                        await asyncio.sleep(0)
            finally:
                sys.setprofile(None)
            writer.close()
            while proxy.clients:
                await asyncio.sleep(0)
        acceptor.close()
    if process is not None:
        process.close()
    proxy.close()
    replica.close()
    return trace


@pytest.mark.interpreted("compiled functions cannot be traced")
def test_the_walk_is_the_way_of_a_request() -> None:
    text = section("docs/architecture.md", "## A stranger's walk").partition("\n### ")[0]
    table = rows(text)[1:]
    walk = [Call(row[1].strip("`"), row[2].strip("`")) for row in table]
    assert [int(row[0]) for row in table] == list(range(1, len(walk) + 1))
    assert len(walk) <= 40
    assert len({step.file for step in walk}) <= 15

    trace = asyncio.run(trace_request())
    left = iter(trace)
    for step in walk:
        caller = next((caller for called, caller in left if called == step), "not called, or not in this order")
        # What is left out returns at once: it never makes a call that is listed.
        assert caller is None or caller in walk, f"{step}: {caller}"

    crossings = [called for called, caller in trace if caller and caller.room == "gateway" != called.room]
    assert Counter(step.room for step in crossings if step in walk) == {"protocols": 1, "core": 2}
    helpers = {step.function for step in crossings if step not in walk}
    assert helpers <= set(re.findall(r"`([\w.]+)`", text.partition("|")[0])), "calls into other rooms that are not told"


@pytest.mark.skipif(not str(exchange.__file__).endswith(".py"), reason="compiled functions cannot be traced")
def test_the_walk_with_several_workers() -> None:
    table = rows(section("docs/architecture.md", "### The walk with several workers"))[1:]
    assert [int(row[0]) for row in table] == list(range(1, len(table) + 1))
    calls = (called for called, _ in asyncio.run(trace_request(several_workers=True)))
    for row in table:
        step = Call(row[2].strip("`"), row[3].strip("`"))
        assert step in calls, f"{step}: not called, or not in this order"
