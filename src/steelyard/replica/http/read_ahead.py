"""A request that waits for its turn: what comes of its body is kept, and whether the client is gone is noticed."""

from __future__ import annotations

import asyncio
from collections import deque

from .asgi import Message, Receive

MAX_BUFFERED_BYTES = 64 << 10  # of a body kept; of a larger one the rest stays with the server until its turn


class ReadAhead:
    """The `receive` of an app that has to wait before it is called."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[Message] = deque()
        self._bytes = 0
        self._asked: asyncio.Future[Message] | None = None  # of the server, and not answered yet

    async def wait_for_turn(self, turn: asyncio.Future[None]) -> bool:
        """True: it is its turn. False: nobody waits for the answer any more."""
        while not turn.done():
            if self._asked is None and self._bytes < MAX_BUFFERED_BYTES:
                self._asked = asyncio.ensure_future(self._receive())
            waits: set[asyncio.Future[None] | asyncio.Future[Message]] = {turn}
            if self._asked is not None:
                waits.add(self._asked)
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self._asked is not None and self._asked.done() and not self._keep():
                return turn.done()
        return True

    def _keep(self) -> bool:
        """False: it was the last there is."""
        assert self._asked is not None
        message = self._asked.result()
        self._asked = None
        self._kept.append(message)
        self._bytes += len(message.get("body", b""))
        return bool(message["type"] != "http.disconnect")

    async def __call__(self) -> Message:
        if self._kept:
            return self._kept.popleft()
        if self._asked is None:
            return await self._receive()
        # The app may stop waiting for it and ask again later; the message must not be lost with the first wait.
        message = await asyncio.shield(self._asked)
        self._asked = None
        return message

    def close(self) -> None:
        if self._asked is not None and not self._asked.cancel() and not self._asked.cancelled():
            self._asked.exception()  # seen: asyncio need not complain that nobody looked
