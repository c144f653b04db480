"""The demo replica as an ASGI app: one thread computes for all connections, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .endpoints import EMBEDDINGS_PATH, Endpoints, StatusAndBody, error_body

MAX_BODY_BYTES = 1 << 20

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class ReplicaApp:
    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self._thread = ThreadPoolExecutor(1, "model")

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            answer: StatusAndBody | None = error_body(413, f"A body has at most {MAX_BODY_BYTES} bytes.")
        elif (scope["method"], scope["path"]) == ("POST", EMBEDDINGS_PATH):
            answer = await self._compute(body, receive)
        else:
            answer = self._endpoints.answer(scope["method"], scope["path"], body)
        if answer is not None:
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer[1]))]
            await send({"type": "http.response.start", "status": answer[0], "headers": headers})
            await send({"type": "http.response.body", "body": answer[1]})

    async def _compute(self, body: bytes, receive: Receive) -> StatusAndBody | None:
        """None: the client left. If the model has not begun with its request, it never will."""
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._endpoints.answer, "POST", EMBEDDINGS_PATH, body)
        left = asyncio.ensure_future(receive())
        both: list[asyncio.Future[Any]] = [work, left]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        left.cancel()
        if not work.done():
            work.cancel()
            return None
        return work.result()


async def _body(receive: Receive) -> bytes | None:
    """None: it is too long."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_BODY_BYTES:
            return None
    return body
