"""A model server to try Steelyard with: OpenAI's chat completions without weights, GPU or extra packages.

It is `loading` before it is ready, serves a few requests at once and takes longer for more tokens. It repeats the
prompt.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from itertools import cycle, islice
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

SECONDS_PER_TOKEN = 0.02
DEFAULT_TOKENS = 16
MAX_TOKENS = 4096


class EchoServer:
    """`speed`: 0.5 takes twice as long. `loading`: seconds."""

    def __init__(self, model: str = "demo", *, speed: float = 1.0, slots: int = 4, loading: float = 0.0) -> None:
        self._model = model
        self._token_seconds = SECONDS_PER_TOKEN / speed
        self._slots = asyncio.Semaphore(slots)
        self._ready_at = time.monotonic() + loading
        self.app = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
            ]
        )

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ready"}) if self._ready else self._loading()

    async def _models(self, request: Request) -> Response:
        return JSONResponse(
            {"object": "list", "data": [{"id": self._model, "object": "model", "owned_by": "steelyard"}]}
        )

    async def _chat(self, request: Request) -> Response:
        if not self._ready:
            return self._loading()
        try:
            asked = json.loads(await request.body())
            words = " ".join(str(message["content"]) for message in asked["messages"]).split() or ["…"]
            count = min(int(asked.get("max_tokens") or DEFAULT_TOKENS), MAX_TOKENS)
        except (ValueError, TypeError, KeyError, AttributeError):
            return _error(400, "The body is JSON with `messages`, a list of objects with `content`.")
        tokens = list(islice(cycle(words), count))
        if asked.get("stream"):
            return StreamingResponse(self._stream(tokens), media_type="text/event-stream")
        async with self._slots:
            await asyncio.sleep(count * self._token_seconds)
        message = {"role": "assistant", "content": " ".join(tokens)}
        usage = {"prompt_tokens": len(words), "completion_tokens": count, "total_tokens": len(words) + count}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        return JSONResponse(self._body("chat.completion", choice) | {"usage": usage})

    async def _stream(self, tokens: list[str]) -> AsyncIterator[str]:
        async with self._slots:
            for token in tokens:
                await asyncio.sleep(self._token_seconds)
                yield self._event({"index": 0, "delta": {"content": f"{token} "}, "finish_reason": None})
        yield self._event({"index": 0, "delta": {}, "finish_reason": "length"})
        yield "data: [DONE]\n\n"

    def _event(self, choice: dict[str, Any]) -> str:
        return f"data: {json.dumps(self._body('chat.completion.chunk', choice))}\n\n"

    def _body(self, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
        about = {"id": "chatcmpl-0", "object": kind, "created": int(time.time()), "model": self._model}
        return {**about, "choices": [choice]}

    @property
    def _ready(self) -> bool:
        return time.monotonic() >= self._ready_at

    def _loading(self) -> Response:
        return _error(503, f"{self._model} is loading.")


def _error(status: int, sentence: str) -> Response:
    return JSONResponse({"error": {"message": sentence, "type": "invalid_request_error"}}, status)
