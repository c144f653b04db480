"""What a demo replica answers, in the dialect of OpenAI. A request in, a status and a body out."""

from __future__ import annotations

import base64
import time
from typing import Annotated, Literal

import msgspec
import numpy as np

from ..corpus import MODEL_NAME
from .model import Embedder, Matrix

MAX_TEXTS = 2048  # as OpenAI has it
MAX_TOKENS_PER_REQUEST = 4096  # a second of work; other requests wait meanwhile

EMBEDDINGS_PATH = "/v1/embeddings"

StatusAndBody = tuple[int, bytes]


class _EmbeddingsRequest(msgspec.Struct):
    input: str | list[str]
    model: str = MODEL_NAME
    encoding_format: Literal["float", "base64"] = "float"


class _SlowdownRequest(msgspec.Struct):
    slowdown: Annotated[float, msgspec.Meta(ge=1.0, le=1000.0)]


class Health(msgspec.Struct):
    status: str = "loading"
    early_requests: int = 0  # requests that came nevertheless
    expected_seconds: float = 0.0  # seconds that all answers should have taken
    overrun_seconds: float = 0.0  # by which they took longer, because other programs had the cores


class Endpoints:
    """`slowdown`: how often as long as its computing an answer takes; the rest of the time nothing is done.

    Without a model it is loading, and says so.
    """

    def __init__(self, model: Embedder | None = None, slowdown: float = 1.0) -> None:
        self.model = model
        self._health = Health()
        self._slowdown = slowdown
        self._decoder = msgspec.json.Decoder(_EmbeddingsRequest)

    def answer(self, method: str, path: str, body: bytes) -> StatusAndBody:
        """Of an embedding this takes as long as the model does."""
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
        """Of the computing alone: a wait for a core, on a busy machine, is no reason to be slower still."""
        expected = self._slowdown * computed
        time.sleep(max(0.0, began + expected - time.monotonic()))
        self._health.expected_seconds += expected
        self._health.overrun_seconds += max(0.0, time.monotonic() - began - expected)


def error_body(status: int, sentence: str, code: str | None = None) -> StatusAndBody:
    error = {"message": sentence, "type": "invalid_request_error", "param": None, "code": code}
    return status, msgspec.json.encode({"error": error})


def _list_of(rows: Matrix, encoding: str, count: int) -> bytes:
    shown = map(_packed, rows) if encoding == "base64" else (row.round(4).tolist() for row in rows.astype(np.float64))
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(shown)]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return msgspec.json.encode({"object": "list", "data": data, "model": MODEL_NAME, "usage": usage})


def _packed(row: Matrix) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()
