"""A worker, or a balancer process, that carries no request, for tests of the supervisor. It speaks the messages and
answers GETs about itself:

/          `index pid number`          /slow   the same after a second    /held     the same after SIGUSR1
/freeze    stops reporting             /die    ends with exit code 3       /garbage  speaks nonsense to the supervisor

Models named `refused` are refused, and with a model named `deadly` it dies. FAKE_WORKER in the environment may hold
`dies` (at start), `no balancer` (the balancer process dies at start), `stubborn` (does not drain), `silent` (never says
that it started).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys

from steelyard.link.messages import (
    Applied,
    Apply,
    Drain,
    FrameDecoder,
    FromWorker,
    ModelReport,
    ReplicaReport,
    ReportRequest,
    Started,
    ToWorker,
    WorkerReport,
    encode_frame,
)

MOOD = os.environ.get("FAKE_WORKER", "")


class FakeWorker:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.index = arguments.index
        self.is_balancer = arguments.recover is not None
        listening = [] if self.is_balancer else arguments.listen.split(",")
        self.sockets = [socket.socket(fileno=int(fd)) for fd in listening]
        self.channel = socket.socket(fileno=arguments.channel)
        self.apply: Apply | None = None
        self.answers = 0
        self.busy = 0
        self.frozen = False
        self.released = asyncio.Event()
        self.servers: list[asyncio.Server] = []

    async def run(self) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: os._exit(0))
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.released.set)
        self.reader, self.writer = await asyncio.open_unix_connection(sock=self.channel)
        asyncio.get_running_loop().create_task(self.report())
        frames = FrameDecoder(ToWorker)
        while data := await self.read():
            for message in frames.feed(data):
                if isinstance(message, Drain):
                    return await self.drain()
                if isinstance(message, Apply):
                    await self.take(message)
                elif isinstance(message, ReportRequest) and self.apply is not None:
                    self.say(self.now(message.number))
        if not self.is_balancer:
            await asyncio.Event().wait()  # the supervisor is gone; go on
        return 0

    async def read(self) -> bytes:
        try:
            return await self.reader.read(65536)
        except ConnectionError:  # the supervisor was killed before it read all that was said
            return b""

    async def take(self, message: Apply) -> None:
        if "deadly" in message.config.models:
            sys.exit("error this is too much for me")
        problem = "no such certificate" if "refused" in message.config.models else ""
        self.say(Applied(message.number, problem))
        if problem:
            return
        if self.apply is None and MOOD != "silent":
            self.servers = [await self.serve(one) for one in self.sockets]
            self.say(Started(os.getpid()))
        self.apply = message

    async def serve(self, one: socket.socket) -> asyncio.Server:
        make = asyncio.start_unix_server if one.family == socket.AF_UNIX else asyncio.start_server
        return await make(self.answer, sock=one)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.busy += 1
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        except (asyncio.IncompleteReadError, ConnectionError):  # it only looked whether somebody listens
            self.busy -= 1
            writer.close()
            return
        if path == b"/slow":
            await asyncio.sleep(1.0)
        if path == b"/held":
            await self.released.wait()
        self.frozen = self.frozen or path == b"/freeze"
        if path == b"/die":
            sys.stderr.write("warning a bad day\nTraceback\nValueError: died as told\n")
            sys.stderr.flush()
            os._exit(3)
        if path == b"/garbage":
            self.writer.write(b"\0\0\0\1\xff")
        assert self.apply is not None
        body = f"{self.index} {os.getpid()} {self.apply.number}".encode()
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        self.answers += 1
        self.busy -= 1
        await writer.drain()
        writer.close()

    async def drain(self) -> int:
        if MOOD == "stubborn":
            await asyncio.Event().wait()
        for one in self.sockets:
            asyncio.get_running_loop().remove_reader(one)
        await asyncio.sleep(0.05)
        for _ in range(10):  # a server that closes drops whom it has just accepted: so much it takes to take one in
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        while self.busy:
            await asyncio.sleep(0.01)
        self.say(self.now())
        await self.writer.drain()
        return 0

    async def report(self) -> None:
        while True:
            if self.apply is not None and not self.frozen:
                self.say(self.now())
            await asyncio.sleep(0.1)

    def now(self, request_number: int = 0) -> WorkerReport:
        models, replicas = [], []
        for name, ids in (self.apply.columns if self.apply else {}).items():
            models.append(ModelReport(name, 0, self.busy, {"ok": self.answers}, {3000: self.answers}))
            replicas += [ReplicaReport(name, id, "ready", self.busy, self.answers, 0, 0.0, 1.0) for id in ids]
        return WorkerReport(self.busy, tuple(models), tuple(replicas), request_number)

    def say(self, message: FromWorker) -> None:
        self.writer.write(encode_frame(message))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("channel", "ledger"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--listen", required=True)
    for name in ("index", "workers", "ledger-row"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--recover")
    for name in ("balancer", "control-socket"):
        parser.add_argument(f"--{name}", default="")
    arguments = parser.parse_args()
    if MOOD == "dies" and arguments.recover is None:
        sys.exit("error: I cannot start")
    if MOOD == "no balancer" and arguments.recover is not None:
        sys.exit("error: I cannot decide")
    sys.exit(asyncio.run(FakeWorker(arguments).run()))


if __name__ == "__main__":
    main()
