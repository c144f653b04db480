"""What a request costs in Python: the gateway's own code from first byte to last, with transports that do nothing.

    python -m benchmarks.path [--requests N] [--profile]

For finding out where time goes; the figure that counts is `benchmarks.overhead`, over real sockets.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import socket
from random import Random
from time import perf_counter, process_time
from typing import Any

from steelyard.config import parse_config
from steelyard.core.balancer import Balancer
from steelyard.gateway.proxy.client_connection import ClientConnection
from steelyard.gateway.proxy.proxy import Proxy
from steelyard.gateway.proxy.upstream_connection import UpstreamConnection
from steelyard.gateway.worker.fleet import WorkerFleet

BODY = (
    b'{"model":"m","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"'
    + b"hello " * 45
    + b'"}],"max_tokens":128,"temperature":0.7}'
)
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: OpenAI/Python 1.40.0\r\n"
    b"Accept: application/json\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"
    b"Content-Type: application/json\r\nAuthorization: Bearer sk-abcdefghijklmnopqrstuvwxyz\r\n"
    b"X-Stainless-Lang: python\r\nContent-Length: %d\r\n\r\n" % len(BODY)
) + BODY
ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Sun, 15 Nov 2026 12:55:28 GMT\r\nContent-Type: application/json\r\n"
    b"Content-Length: 300\r\nConnection: keep-alive\r\n\r\n" + b"x" * 300
)


IDLE_SOCKET, _PEER_SOCKET = socket.socketpair()


class NullTransport:
    """Discards what is written and records its owner."""

    def __init__(self, written: list[Any], owner: Any) -> None:
        self._written = written
        self._owner = owner

    def write(self, data: bytes) -> None:
        self._written.append(self._owner)

    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 4242), "socket": IDLE_SOCKET}.get(name)


async def run(requests: int, connections: int, replicas: int, profile: bool) -> None:
    urls = "".join(f"      - {{url: 'http://127.0.0.1:{9000 + i}'}}\n" for i in range(replicas))
    config = parse_config(f"models:\n  '*':\n    health: {{enabled: false}}\n    replicas:\n{urls}")
    proxy = Proxy(asyncio.get_running_loop(), Balancer(Random(1)), config)
    WorkerFleet(proxy).apply(config, {}, 0.0)
    sent: list[UpstreamConnection] = []
    for endpoint in proxy.connection_pools.values():
        for _ in range(connections):
            connection = UpstreamConnection(endpoint)
            connection.connection_made(NullTransport(sent, connection))
    clients = [ClientConnection(proxy) for _ in range(connections)]
    for client in clients:
        client.connection_made(NullTransport([], client))

    def rounds(count: int) -> None:
        for _ in range(count // connections):
            for client in clients:
                client.data_received(REQUEST)
            proxy.writer.end_turn()
            for connection in sent[:]:
                connection.data_received(ANSWER)
            proxy.writer.end_turn()
            sent.clear()

    rounds(5_000)
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    best = float("inf")
    for _ in range(5):
        began, cpu = perf_counter(), process_time()
        rounds(requests)
        best = min(best, process_time() - cpu)
        if perf_counter() - began < 0:
            break
    profiler.disable()
    print(
        f"{best / requests * 1e6:.2f} µs of CPU a request, best of 5 ({connections} connections, {replicas} replicas)"
    )
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(35)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.requests, arguments.connections, arguments.replicas, arguments.profile))


if __name__ == "__main__":
    main()
