"""What a demo replica answers, in the dialect of OpenAI. Pure: a request in, a status and a body out."""

from __future__ import annotations

import base64
from typing import Literal

import msgspec
import numpy as np

from .corpus import MODEL
from .model import Matrix, TopicModel, words

MOST_TEXTS = 2048  # as OpenAI has it
MOST_WORDS = 8192  # a third of a second of work; nobody else is served meanwhile

Answer = tuple[int, bytes]


class _Asked(msgspec.Struct):
    input: str | list[str]
    model: str = MODEL
    encoding_format: Literal["float", "base64"] = "float"


class Endpoints:
    """`passes`: how often all work is done. Two passes make a replica half as fast, and change no answer."""

    def __init__(self, model: TopicModel, passes: int = 1) -> None:
        self._model = model
        self._passes = passes
        self._decoder = msgspec.json.Decoder(_Asked)

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Of an embedding this takes as long as the model does."""
        match method, path:
            case "POST", "/v1/embeddings":
                return self._embeddings(body)
            case "GET", "/health":
                return 200, b'{"status":"ok"}'
            case "GET", "/v1/models":
                shown = {"id": MODEL, "object": "model", "created": 0, "owned_by": "steelyard demo"}
                return 200, msgspec.json.encode({"object": "list", "data": [shown]})
            case _, "/v1/embeddings" | "/health" | "/v1/models":
                return problem(405, f"{path} does not know the method {method}.")
        return problem(404, f"There is no {path} here; there is POST /v1/embeddings.")

    def _embeddings(self, body: bytes) -> Answer:
        try:
            asked = self._decoder.decode(body)
        except msgspec.DecodeError as wrong:
            return problem(400, f"The body cannot be read: {wrong}.")
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        if asked.model != MODEL:
            return problem(404, f"There is no model {asked.model!r} here; there is {MODEL!r}.", "model_not_found")
        if not 1 <= len(texts) <= MOST_TEXTS:
            return problem(400, f"input has {len(texts)} texts; send 1 to {MOST_TEXTS}.")
        count = sum(len(words(text)) for text in texts)
        if count > MOST_WORDS:
            return problem(400, f"input has {count} words; send at most {MOST_WORDS} at once.")
        for _ in range(self._passes):
            rows = self._model.embed(texts)
        return 200, _list_of(rows, asked.encoding_format, count)


def problem(status: int, sentence: str, code: str | None = None) -> Answer:
    error = {"message": sentence, "type": "invalid_request_error", "param": None, "code": code}
    return status, msgspec.json.encode({"error": error})


def _list_of(rows: Matrix, encoding: str, count: int) -> bytes:
    shown = map(_packed, rows) if encoding == "base64" else (row.round(4).tolist() for row in rows.astype(np.float64))
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(shown)]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return msgspec.json.encode({"object": "list", "data": data, "model": MODEL, "usage": usage})


def _packed(row: Matrix) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()
