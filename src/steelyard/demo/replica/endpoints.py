"""A demo replica in the dialect of OpenAI, as an ASGI app: one thread computes, one request at a time."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from ..corpus import MODEL_NAME
from .model import Embedder, Matrix

MAX_TEXTS = 2048  # as OpenAI has it
MAX_TOKENS_PER_REQUEST = 4096  # a second of work; other requests wait meanwhile
MAX_BODY_BYTES = 1 << 20
EMBEDDINGS_PATH = "/v1/embeddings"

StatusAndBody = tuple[int, bytes]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class _EmbeddingsRequest(msgspec.Struct):
    input: str | list[str]
    model: str = MODEL_NAME
    encoding_format: Literal["float", "base64"] = "float"


class _SlowdownRequest(msgspec.Struct):
    slowdown: Annotated[float, msgspec.Meta(ge=1.0, le=1000.0)]


class Health(msgspec.Struct):
    status: str = "loading"
    early_requests: int = 0  # that came while loading
    expected_seconds: float = 0.0  # that all answers should have taken
    overrun_seconds: float = 0.0  # by which they took longer, because other programs had the cores


class Endpoints:
    """`slowdown`: an answer takes this many times its computing. No model: it is loading."""

    def __init__(self, model: Embedder | None = None, slowdown: float = 1.0) -> None:
        self.model = model
        self._health = Health()
        self._slowdown = slowdown
        self._decoder = msgspec.json.Decoder(_EmbeddingsRequest)
        self._thread = ThreadPoolExecutor(1, "model")

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            answer: StatusAndBody | None = error_body(413, f"A body has at most {MAX_BODY_BYTES} bytes.")
        elif (scope["method"], scope["path"]) == ("POST", EMBEDDINGS_PATH):
            answer = await self._compute(body, receive)
        else:
            answer = self.answer(scope["method"], scope["path"], body)
        if answer is not None:
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer[1]))]
            await send({"type": "http.response.start", "status": answer[0], "headers": headers})
            await send({"type": "http.response.body", "body": answer[1]})

    async def _compute(self, body: bytes, receive: Receive) -> StatusAndBody | None:
        """None: the client left; a request that the model has not begun is dropped."""
        work = asyncio.get_running_loop().run_in_executor(self._thread, self._embeddings, body)
        left = asyncio.ensure_future(receive())
        both: list[asyncio.Future[Any]] = [work, left]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        left.cancel()
        if not work.done():
            work.cancel()
            return None
        return work.result()

    def answer(self, method: str, path: str, body: bytes) -> StatusAndBody:
        """Blocks while the model computes."""
        match method, path:
            case "POST", "/v1/embeddings":
                return self._embeddings(body)
            case "GET", "/health":
                return self._how_it_is()
            case "GET", "/v1/models":
                shown = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "steelyard demo"}
                return 200, msgspec.json.encode({"object": "list", "data": [shown]})
            case "POST", "/slowdown":
                return self._set_slowdown(body)
            case _, "/v1/embeddings" | "/health" | "/v1/models" | "/slowdown":
                return error_body(405, f"{path} does not know the method {method}.")
        return error_body(404, f"There is no {path} here; there is POST /v1/embeddings.")

    def _how_it_is(self) -> StatusAndBody:
        self._health.status = "loading" if self.model is None else "ok"
        return 503 if self.model is None else 200, msgspec.json.encode(self._health)

    def _set_slowdown(self, body: bytes) -> StatusAndBody:
        try:
            self._slowdown = msgspec.json.decode(body, type=_SlowdownRequest).slowdown
        except msgspec.DecodeError as wrong:
            return error_body(400, f"The body cannot be read: {wrong}.")
        return 200, b"{}"

    def _embeddings(self, body: bytes) -> StatusAndBody:
        model = self.model
        if model is None:
            self._health.early_requests += 1
            return error_body(503, "The model is being loaded.")
        try:
            asked = self._decoder.decode(body)
        except msgspec.DecodeError as wrong:
            return error_body(400, f"The body cannot be read: {wrong}.")
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        if asked.model != MODEL_NAME:
            return error_body(
                404, f"There is no model {asked.model!r} here; there is {MODEL_NAME!r}.", "model_not_found"
            )
        if not 1 <= len(texts) <= MAX_TEXTS:
            return error_body(400, f"input has {len(texts)} texts; send 1 to {MAX_TEXTS}.")
        began, computing = time.monotonic(), time.thread_time()
        numbers = [model.tokenize(text) for text in texts]
        count = sum(map(len, numbers))
        if count > MAX_TOKENS_PER_REQUEST:
            return error_body(400, f"input has {count} tokens; send at most {MAX_TOKENS_PER_REQUEST} at once.")
        rows = model.embed(numbers)
        self._slow_down(began, time.thread_time() - computing)
        return 200, _list_of(rows, asked.encoding_format, count)

    def _slow_down(self, began: float, computed: float) -> None:
        """Counts the computing alone, not the wait for a core."""
        expected = self._slowdown * computed
        time.sleep(max(0.0, began + expected - time.monotonic()))
        self._health.expected_seconds += expected
        self._health.overrun_seconds += max(0.0, time.monotonic() - began - expected)


def error_body(status: int, sentence: str, code: str | None = None) -> StatusAndBody:
    error = {"message": sentence, "type": "invalid_request_error", "param": None, "code": code}
    return status, msgspec.json.encode({"error": error})


def _list_of(rows: Matrix, encoding: str, count: int) -> bytes:
    packed = (base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows)
    shown = packed if encoding == "base64" else (row.round(4).tolist() for row in rows.astype(np.float64))
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(shown)]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return msgspec.json.encode({"object": "list", "data": data, "model": MODEL_NAME, "usage": usage})


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
