"""Fair turns: a bound on what one connection gets done in one turn of the event loop.

A connection with more to do than that (pipelined requests that are answered here, many small chunks, a full read of a
large body) is not read for now and joins a queue. Each turn of the loop serves the first of the queue and then polls
all sockets again. So what one connection sends delays the others by a bounded time, however much it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .client_connection import ClientConnection

MAX_REQUESTS_PER_TURN: Final = 2  # of one connection, begun in one turn
MAX_BYTES_PER_TURN: Final = 64 << 10  # of pipelined requests, and of one read after which a body yields
MAX_CHUNKS_PER_TURN: Final = 256  # of a body: some 0.2 ms in plain Python


class FairTurns:
    """The connections that wait for their next turn, first come, first served."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self.waiting: dict[ClientConnection, None] = {}
        self._loop = loop
        self._clock = clock
        self._scheduled = False

    def wait(self, client: ClientConnection) -> None:
        self.waiting[client] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        client = next(iter(self.waiting))
        del self.waiting[client]
        try:
            client.take_turn(self._clock())
        finally:
            self._scheduled = bool(self.waiting)
            if self._scheduled:
                self._loop.call_soon(self._serve)
