"""Replicas for streams and large bodies, all ports in one process: `python -m benchmarks.mocks.stubs PORT PORT …`.

`"stream": true` in a request's body: an event every 50 ms, each with the time it was sent, until the client leaves.
`"answer": "N"` in it: an answer of N bytes. A large body: how many bytes came. Anything else: 200 and a little JSON.
"""

from __future__ import annotations

import asyncio
import re
import sys
from time import monotonic, monotonic_ns

import uvloop

from ..load.chat_request import answer, padded
from ..load.http_protocol import MAX_KEPT_BYTES, ServerConnection
from ..load.timer import Timer

EVENT_INTERVAL_SECONDS = 0.05
STREAM_COUNT = 200  # share the interval evenly
EVENT = padded('data: {"id":"chatcmpl-0123456789","object":"chat.completion.chunk","t":"%020d","choices":[…]}', 246)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER_PATTERN = re.compile(rb'"answer":\s*"(\d+)"')


class Stub(ServerConnection):
    timer: Timer
    streams = 0
    filler: bytes = b""

    def __init__(self) -> None:
        super().__init__()
        self.next = 0.0

    def message(self, body: bytes) -> None:
        if re.search(rb'"stream":\s*true', body):
            self.begin_stream()
        elif wanted := ANSWER_PATTERN.search(body):
            self.reply(self.of_size(int(wanted[1])))
        elif self.length > MAX_KEPT_BYTES:
            self.reply(b'{"received": %d}' % self.length)
        else:
            self.reply(answer().encode())

    @classmethod
    def of_size(cls, size: int) -> bytes:
        if len(cls.filler) != size:
            cls.filler = b"x" * size
        return cls.filler

    def begin_stream(self) -> None:
        self.transport.write(STREAM_HEAD)
        Stub.streams += 1
        # On a grid that all streams share, each at a place of its own: never two events at once.
        grid = monotonic() // EVENT_INTERVAL_SECONDS * EVENT_INTERVAL_SECONDS + 2 * EVENT_INTERVAL_SECONDS
        self.next = grid + EVENT_INTERVAL_SECONDS * (Stub.streams % STREAM_COUNT) / STREAM_COUNT
        self.timer.at(self.next, self.event)

    def event(self) -> None:
        if self.transport.is_closing():
            return
        text = (EVENT % monotonic_ns()).encode() + b"\n\n"
        self.transport.write(b"%x\r\n%b\r\n" % (len(text), text))
        self.next += EVENT_INTERVAL_SECONDS
        self.timer.at(self.next, self.event)


async def serve(ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    Stub.timer = Timer(loop)
    for port in ports:
        await loop.create_server(Stub, "127.0.0.1", port, backlog=4096)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve([int(text) for text in sys.argv[1:]]))
