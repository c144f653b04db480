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
from types import FrameType
from typing import NamedTuple

import pytest

from steelyard.config import parse_config
from steelyard.core.balancer import Balancer
from steelyard.gateway import exchange
from steelyard.gateway.proxy.proxy import Proxy
from steelyard.gateway.worker.acceptor import Acceptor
from steelyard.gateway.worker.fleet import WorkerFleet

from .test_docs import rows, section

PACKAGE = f"{Path(exchange.__file__).parents[1]}/"
BODY = b'{"model":"m","messages":[{"role":"user","content":"hello"}]}'
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
CONFIG = """
models:
  m:
    dialect: openai
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


async def trace_request() -> list[tuple[Call, Call | None]]:
    """All calls of one request with their callers, from accept on, after another has made a connection to keep."""
    trace: list[tuple[Call, Call | None]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (called := call_of(frame)) is not None:
            trace.append((called, call_of(frame.f_back)))

    replica = await asyncio.start_server(serve, "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    config = parse_config(CONFIG % replica.sockets[0].getsockname()[1])
    proxy = Proxy(loop, Balancer(Random(1)), config)
    WorkerFleet(proxy).apply(config, {}, loop.time())
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
            finally:
                sys.setprofile(None)
            writer.close()
            while proxy.clients:
                await asyncio.sleep(0)
        acceptor.close()
    proxy.close()
    replica.close()
    return trace


@pytest.mark.interpreted("compiled functions cannot be traced")
def test_the_walk_is_the_way_of_a_request() -> None:
    text = section("docs/architecture.md", "## A stranger's walk")
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
