"""A replica that is quick to start: what a model's `runtime` runs in tests. It sleeps in place of working.

/health is 503 until `--cold` seconds have passed and the file `--gate` is there. Everything else takes `--seconds`,
`--at-once` requests at a time, and is answered with `pid generation`. Each start and each request is a line in the file
`--replica-log`. /stream is answered piece by piece, until there is a file of the log's name and `.end`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time


class Replica:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.ready_at = time.monotonic() + given.cold
        self.turns = asyncio.Semaphore(given.at_once)

    async def serve(self) -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, (lambda: None) if self.given.deaf else over.set)
        await asyncio.start_server(self.talk, "127.0.0.1", self.given.port)
        await over.wait()
        os._exit(0)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(length(head))
                if head.startswith(b"POST /stream"):
                    await self.stream(writer)
                    continue
                status, body = await self.answer(head.split(b" ", 2)[1])
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def stream(self, writer: asyncio.StreamWriter) -> None:
        write(self.given.replica_log, f"request {os.getpid()}")
        writer.write(b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n")
        while not os.path.exists(f"{self.given.replica_log}.end"):
            writer.write(b"1\r\n.\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.write(b"0\r\n\r\n")

    async def answer(self, target: bytes) -> tuple[int, bytes]:
        if target == b"/health":
            ready = time.monotonic() >= self.ready_at and (not self.given.gate or os.path.exists(self.given.gate))
            return (200, b"ready") if ready else (503, b"loading")
        write(self.given.replica_log, f"request {os.getpid()}")
        async with self.turns:
            await asyncio.sleep(self.given.seconds)
        return 200, f"{os.getpid()} {self.given.generation}".encode()


def length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def write(replica_log: str, line: str) -> None:
    """Lines of several processes stay whole: each is one short append."""
    if replica_log:
        file = os.open(replica_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{line}\n".encode())
        os.close(file)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cold", type=float, default=0.0)
    parser.add_argument("--gate", default="")
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--generation", default="1")
    parser.add_argument("--replica-log", default="")
    parser.add_argument("--dies", default="", help="say this and end with code 3")
    parser.add_argument("--deaf", action="store_true", help="to SIGTERM")
    given = parser.parse_args()
    write(given.replica_log, f"start {os.getpid()}")
    if given.dies:
        print(f"begins\n{given.dies}", flush=True)
        sys.exit(3)
    print(f"pretends to load for {given.cold:g} s", flush=True)
    asyncio.run(Replica(given).serve())


if __name__ == "__main__":
    main()
