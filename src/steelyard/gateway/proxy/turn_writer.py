"""The one write path to clients and replicas.

The first write of a turn of the event loop goes out at once. Later small writes go out together at its end, in order:
each write may wake a process on the other side, which on a virtual machine costs more than the write itself.
"""

from __future__ import annotations

import asyncio
from asyncio import Transport
from typing import Final

MAX_DEFERRED_BYTES: Final = 16 << 10  # a larger write goes out at once: a full buffer must stop its source


class TurnWriter:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deferred: list[tuple[Transport, bytes]] = []
        self._turn_began = False

    def write(self, transport: Transport, data: bytes) -> None:
        if self._turn_began and len(data) <= MAX_DEFERRED_BYTES:
            self._deferred.append((transport, data))
            return
        if self._deferred:
            self.flush()
        if not self._turn_began:
            self._turn_began = True
            self._loop.call_soon(self.end_turn)
        transport.write(data)

    def end_turn(self) -> None:
        self._turn_began = False
        if self._deferred:
            self.flush()

    def flush(self) -> None:
        deferred, self._deferred = self._deferred, []
        for transport, data in deferred:
            try:
                if not transport.is_closing():
                    transport.write(data)
            except RuntimeError:  # it was shut down meanwhile; the other transports still get their data
                pass

    def write_eof(self, transport: Transport) -> None:
        if self._deferred:
            self.flush()
        transport.write_eof()

    def close(self, transport: Transport) -> None:
        if self._deferred:
            self.flush()
        transport.close()

    def abort(self, transport: Transport) -> None:
        if self._deferred:
            self.flush()
        transport.abort()
