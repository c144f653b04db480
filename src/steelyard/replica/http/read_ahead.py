"""A request that waits for its turn: keeps its body, and notices when the client leaves."""

from __future__ import annotations

import asyncio
from collections import deque

from .asgi import Message, Receive

MAX_BUFFERED_BYTES = 64 << 10  # of a body; the server keeps the rest


class ReadAhead:
    """The `receive` of an app that is not called yet."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[Message] = deque()
        self._bytes = 0
        self._asked: asyncio.Future[Message] | None = None  # of the server, unanswered

    async def wait_for_turn(self, turn: asyncio.Future[None]) -> bool:
        """False: the client left."""
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
        """False: it was the last."""
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
        # The app may stop waiting and ask again: the message must not be lost.
        message = await asyncio.shield(self._asked)
        self._asked = None
        return message

    def close(self) -> None:
        if self._asked is not None and not self._asked.cancel() and not self._asked.cancelled():
            self._asked.exception()  # or asyncio complains that it was never retrieved
