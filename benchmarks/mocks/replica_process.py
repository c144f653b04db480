"""One replica in a process of its own: `python -m benchmarks.mocks.replica_process PORT LOG LOADING`.

It speaks the Open Inference Protocol, serves requests one after the other, each for the time it asks for, and is not
ready for the first LOADING seconds. SIGUSR1 begins and ends instant 500s, SIGUSR2 readiness that flaps. Whatever
reaches it is written to LOG with the time at which the kernel got it: a frozen process reads late, but is not given
requests any later.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from functools import partial

import uvloop

from ..load.http_protocol import ServerConnection
from ..load.timer import Timer
from .timed_replicas import WORK_PATTERN

SO_TIMESTAMPNS = 35  # socket(7); Python does not name it
FLAP_INTERVAL_SECONDS = 1.0  #
LOG_UP, LOG_READY = "up", "ready"  # in the log, beside the statuses of requests
STATUS_LINES = {500: "500 Internal Server Error", 503: "503 Service Unavailable"}


class Replica:
    def __init__(self, log: str, loading: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.timer = Timer(self.loop)
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.ready = not loading
        self.failing = False
        self.flapping = False
        self.free = 0.0  # when all that has come so far is done
        self.loop.add_signal_handler(signal.SIGUSR1, self.toggle_failing)
        self.loop.add_signal_handler(signal.SIGUSR2, self.toggle_flapping)
        self.note(time.monotonic(), LOG_UP)
        if loading:
            self.loop.call_later(loading, self.become_ready)

    def note(self, when: float, what: str) -> None:
        os.write(self.log, f"{when:.6f} {what}\n".encode())

    def become_ready(self) -> None:
        self.ready = True
        self.note(time.monotonic(), LOG_READY)

    def toggle_failing(self) -> None:
        self.failing = not self.failing

    def toggle_flapping(self) -> None:
        self.flapping = not self.flapping
        self.flap()

    def flap(self) -> None:
        self.ready = not self.ready or not self.flapping
        if self.flapping:
            self.loop.call_later(FLAP_INTERVAL_SECONDS, self.flap)

    def serve(self, connection: Connection, body: bytes) -> None:
        """Fails requests while not ready."""
        bad = 500 if self.failing else 0 if self.ready else 503
        self.note(connection.arrived, str(bad or 200))
        if bad:
            connection.reply(b'{"error": "out of order"}', STATUS_LINES[bad])
            return
        match = WORK_PATTERN.search(body)
        self.free = max(time.monotonic(), self.free) + (float(match[1]) if match else 0.001)
        self.timer.at(self.free, partial(connection.reply, b'{"model_name": "m", "outputs": []}'))


class Connection(ServerConnection):
    """Read with recvmsg, for with it the kernel says when the bytes came."""

    def __init__(self, replica: Replica, end: socket.socket) -> None:
        super().__init__()
        self.replica = replica
        self.socket = end
        self.transport = self
        self.arrived = 0.0
        self.closed = False
        replica.loop.add_reader(end, self.readable)

    def readable(self) -> None:
        data = b""
        with suppress(OSError):
            data, notes, _, _ = self.socket.recvmsg(1 << 16, 64)
            self.arrived = arrival(notes)
        if data:
            self.data_received(data)
        else:
            self.abort()

    def on_message_complete(self) -> None:
        if self.parser.get_method() != b"GET":
            super().on_message_complete()
        elif self.url.endswith(b"/ready") and not self.replica.ready:
            self.reply(b'{"error": "loading"}', STATUS_LINES[503])
        else:
            self.reply(b"{}")

    def message(self, body: bytes) -> None:
        self.replica.serve(self, body)

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        with suppress(OSError):  # the client has left
            self.socket.send(data)

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self.replica.loop.remove_reader(self.socket)
            self.socket.close()


def arrival(notes: list[tuple[int, int, bytes]]) -> float:
    """The kernel's time, which is the wall's, as one of CLOCK_MONOTONIC."""
    now = time.monotonic()
    for level, kind, data in notes:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = map(float, struct.unpack("qq", data[:16]))
            return now - (time.time() - seconds - nanoseconds / 1e9)
    return now


async def serve(port: int, log: str, loading: float) -> None:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # accepted sockets inherit it
    listener.bind(("127.0.0.1", port))
    listener.listen(4096)
    listener.setblocking(False)
    replica = Replica(log, loading)

    def accept() -> None:
        with suppress(OSError):
            end, _ = listener.accept()
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Connection(replica, end)

    replica.loop.add_reader(listener, accept)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
