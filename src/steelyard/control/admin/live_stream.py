"""The live state as Server-Sent Events, for as long as the client reads."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .live_subscribers import LiveSubscriber, LiveSubscribers

EVENT_STREAM_TYPE = "text/event-stream"
KEEPALIVE_COMMENT = b": still here\n\n"
KEEPALIVE_SECONDS = 15.0  # so that no proxy takes the stream for dead


class EventStream(Response):
    def __init__(self, watchers: LiveSubscribers, request: Request) -> None:
        """Raises ApiError if there are too many subscribers."""
        super().__init__()
        self._watchers = watchers
        self._watcher = None if request.method == "HEAD" else watchers.join(request.scope["state"]["cut"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = self._watcher
        try:
            kind = (b"content-type", EVENT_STREAM_TYPE.encode())
            await send({"type": "http.response.start", "status": 200, "headers": [kind]})
            if watcher is not None:
                await _send_until_gone(watcher, receive, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if watcher is not None:
                self._watchers.leave(watcher)


async def _send_until_gone(watcher: LiveSubscriber, receive: Receive, send: Send) -> None:
    telling = asyncio.ensure_future(_send_events(watcher, send))
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((telling, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (telling, gone):
            task.cancel()
        await asyncio.gather(telling, gone, return_exceptions=True)


async def _send_events(watcher: LiveSubscriber, send: Send) -> None:
    while True:
        try:
            async with asyncio.timeout(KEEPALIVE_SECONDS):
                message = await watcher.queue.get()
        except TimeoutError:
            message = KEEPALIVE_COMMENT
        if message is None:
            return
        watcher.busy = True
        await send({"type": "http.response.body", "body": message, "more_body": True})
        watcher.busy = False


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
