"""Clients that try to take the gateway from the others: `python -m benchmarks.load.flood_clients KIND PORT SECONDS`."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep

PIPELINED = b"GET /v1/models HTTP/1.1\r\nhost: flood\r\n\r\n" * 100_000
CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nhost: flood\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKS = b"1\r\na\r\n" * (1 << 16)
BODIES = 40  # of CHUNKS in one request: 15 MB
HELD = (1 << 20) - 1  # bytes of each upload that drips: less than the gateway of floods.py streams
UPLOADS = 32  # all that it holds together
DRIP = 5.0  # seconds between two bytes


def pipeline(port: int, end: float) -> None:
    """100,000 requests at once, whose answers are read."""
    while monotonic() < end:
        with suppress(OSError), _connect(port) as made:
            threading.Thread(target=_drain, args=(made,), daemon=True).start()
            made.sendall(PIPELINED)
            made.shutdown(socket.SHUT_WR)
            sleep(0.1)


def chunks(port: int, end: float) -> None:
    """Bodies of one-byte chunks."""
    while monotonic() < end:
        with suppress(OSError), _connect(port) as made:
            threading.Thread(target=_drain, args=(made,), daemon=True).start()
            made.sendall(CHUNKED)
            for _ in range(BODIES):
                if monotonic() < end:
                    made.sendall(CHUNKS)


def drip(port: int, end: float) -> None:
    """An upload that fills its share of the buffers and then goes on by a byte now and then; when it is cut, again."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: flood\r\ncontent-length: %d\r\n\r\n" % (HELD + 1000)
    while monotonic() < end:
        with suppress(OSError), _connect(port) as made:
            made.sendall(head + b"x" * HELD)
            made.settimeout(DRIP)
            while monotonic() < end:
                with suppress(TimeoutError):
                    if not made.recv(4096):
                        break
                made.sendall(b"x")
        sleep(0.5)


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30.0)


def _drain(made: socket.socket) -> None:
    buffer = bytearray(1 << 18)
    with suppress(OSError):
        while made.recv_into(buffer):
            pass


KINDS: dict[str, tuple[Callable[[int, float], None], int]] = {
    "pipeline": (pipeline, 2),
    "chunks": (chunks, 2),
    "drip": (drip, UPLOADS),
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
