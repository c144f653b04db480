"""Clients that try to take the gateway from the others: `python -m benchmarks.load.flood_clients KIND PORT SECONDS`."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep

PIPELINED_REQUESTS = b"GET /v1/models HTTP/1.1\r\nhost: flood\r\n\r\n" * 100_000
CHUNKED_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: flood\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK_BLOCK = b"1\r\na\r\n" * (1 << 16)
BLOCKS_PER_REQUEST = 40  # 15 MB
HELD_BYTES = (1 << 20) - 1  # bytes of each upload that drips: less than the gateway of floods.py streams
DRIPPING_UPLOADS = 32  # all that it holds together
DRIP_INTERVAL_SECONDS = 5.0


def pipeline(port: int, end: float) -> None:
    """100,000 requests at once, whose answers are read."""
    while monotonic() < end:
        with suppress(OSError), _connect(port) as connection:
            threading.Thread(target=_drain, args=(connection,), daemon=True).start()
            connection.sendall(PIPELINED_REQUESTS)
            connection.shutdown(socket.SHUT_WR)
            sleep(0.1)


def chunks(port: int, end: float) -> None:
    """Bodies of one-byte chunks."""
    while monotonic() < end:
        with suppress(OSError), _connect(port) as connection:
            threading.Thread(target=_drain, args=(connection,), daemon=True).start()
            connection.sendall(CHUNKED_HEAD)
            for _ in range(BLOCKS_PER_REQUEST):
                if monotonic() < end:
                    connection.sendall(CHUNK_BLOCK)


def drip(port: int, end: float) -> None:
    """An upload that fills its share of the buffers, then drips; reconnects when cut."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: flood\r\ncontent-length: %d\r\n\r\n" % (HELD_BYTES + 1000)
    while monotonic() < end:
        with suppress(OSError), _connect(port) as connection:
            connection.sendall(head + b"x" * HELD_BYTES)
            connection.settimeout(DRIP_INTERVAL_SECONDS)
            while monotonic() < end:
                with suppress(TimeoutError):
                    if not connection.recv(4096):
                        break
                connection.sendall(b"x")
        sleep(0.5)


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30.0)


def _drain(connection: socket.socket) -> None:
    buffer = bytearray(1 << 18)
    with suppress(OSError):
        while connection.recv_into(buffer):
            pass


KINDS: dict[str, tuple[Callable[[int, float], None], int]] = {
    "pipeline": (pipeline, 2),
    "chunks": (chunks, 2),
    "drip": (drip, DRIPPING_UPLOADS),
}


def main() -> None:
    flood, count = KINDS[sys.argv[1]]
    port, end = int(sys.argv[2]), monotonic() + float(sys.argv[3])
    threads = [threading.Thread(target=flood, args=(port, end)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
