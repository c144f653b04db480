"""Fair turns: a bound on what one connection gets done in one turn of the event loop.

A connection with more to do (pipelined requests answered here, many small chunks, a full read of a large body) is not
read for now and joins a queue. Each turn of the loop serves the first of the queue and polls all sockets again, so one
connection delays the others by a bounded time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .flow_control import FlowControl

MAX_REQUESTS_PER_TURN: Final = 2
MAX_BYTES_PER_TURN: Final = 64 << 10  # of pipelined requests, and of one read of a body
MAX_CHUNKS_PER_TURN: Final = 256  # some 0.2 ms in plain Python


class FairTurns:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self.waiting: dict[FlowControl, None] = {}
        self._loop = loop
        self._clock = clock
        self._scheduled = False

    def wait(self, client: FlowControl) -> None:
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
