"""Very many replicas in one process, each with a socket of its own: `python -m benchmarks.mocks.stub_fleet PORT COUNT`.

They share a port and have an address each in 127.0.0.0/8, which on Linux is all this machine. All are ready and answer
at once. A GET of /seen on 127.0.0.1 tells when which of them was probed since it was last asked.
"""

from __future__ import annotations

import asyncio
import sys
from time import monotonic

import msgspec
import uvloop

from ..load.http_protocol import ServerEnd

SEEN = b"/seen"
CONTROL = "127.0.0.1"
MOST = 1_000_000  # probes that are kept


def address(place: int) -> str:
    return f"127.1.{place // 250}.{place % 250 + 1}"


class Crowd:
    def __init__(self) -> None:
        self.probes: list[tuple[float, str]] = []

    def probed(self, host: str) -> None:
        if len(self.probes) < MOST:
            self.probes.append((monotonic(), host))


class Stub(ServerEnd):
    def __init__(self, crowd: Crowd) -> None:
        super().__init__()
        self.crowd = crowd
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.host = transport.get_extra_info("sockname")[0]

    def on_message_complete(self) -> None:
        if self.parser.get_method() != b"GET":
            self.reply(b'{"model_name": "m", "outputs": []}')
        elif self.url == SEEN:
            self.reply(msgspec.json.encode(self.crowd.probes))
            self.crowd.probes.clear()
        else:
            self.crowd.probed(self.host)
            self.reply(b"{}")


async def serve(port: int, count: int) -> None:
    crowd = Crowd()
    hosts = [CONTROL, *map(address, range(count))]
    await asyncio.get_running_loop().create_server(lambda: Stub(crowd), hosts, port, backlog=128)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
