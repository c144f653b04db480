"""Very many replicas in one process, each with a socket of its own: `python -m benchmarks.mocks.stub_fleet PORT COUNT`.

They share a port and have an address each in 127.0.0.0/8, which on Linux is all this machine. All are ready and answer
at once. GET /seen on 127.0.0.1 returns the probes since the last GET.
"""

from __future__ import annotations

import asyncio
import sys
from time import monotonic

import msgspec
import uvloop

from ..load.http_protocol import ServerConnection

PROBES_PATH = b"/seen"
CONTROL_HOST = "127.0.0.1"
MAX_PROBES = 1_000_000  # probes that are kept


def address(place: int) -> str:
    return f"127.1.{place // 250}.{place % 250 + 1}"


class ProbeLog:
    def __init__(self) -> None:
        self.probes: list[tuple[float, str]] = []

    def probed(self, host: str) -> None:
        if len(self.probes) < MAX_PROBES:
            self.probes.append((monotonic(), host))


class Stub(ServerConnection):
    def __init__(self, log: ProbeLog) -> None:
        super().__init__()
        self.log = log
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.host = transport.get_extra_info("sockname")[0]

    def on_message_complete(self) -> None:
        if self.parser.get_method() != b"GET":
            self.reply(b'{"model_name": "m", "outputs": []}')
        elif self.url == PROBES_PATH:
            self.reply(msgspec.json.encode(self.log.probes))
            self.log.probes.clear()
        else:
            self.log.probed(self.host)
            self.reply(b"{}")


async def serve(port: int, count: int) -> None:
    log = ProbeLog()
    hosts = [CONTROL_HOST, *map(address, range(count))]
    await asyncio.get_running_loop().create_server(lambda: Stub(log), hosts, port, backlog=128)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
