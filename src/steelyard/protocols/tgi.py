"""Text Generation Inference: OpenAI's endpoints, and its own older ones, which name no model."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw, Struct, json

from .base import Call, Peek, bounded
from .load import MetricsAt
from .openai import LONG, OpenAI
from .shapes import NOTHING
from .text import BROKEN, given, measure

OWN = frozenset(("/generate", "/generate_stream", ""))  # POST / is either of the two
TOKENS = 100.0  # its default of max_new_tokens


class _Parameters(Struct, gc=False):
    max_new_tokens: float | None = None
    best_of: float | None = None


class _Generate(Struct, gc=False):
    inputs: Raw = NOTHING
    parameters: _Parameters | None = None


_generate = json.Decoder(_Generate).decode


class Tgi(OpenAI):
    name = "tgi"
    metrics = MetricsAt()

    def call(self, method: str, path: str) -> Call | None:
        if method == "POST" and path.rstrip("/") in OWN:
            return Call("generate", reads_body=True, idempotent=True)
        return super().call(method, path)

    def peek(self, call: Call, body: bytes, headers: Mapping[bytes, bytes]) -> Peek:
        if call.kind != "generate":
            return super().peek(call, body, headers)
        try:
            said = _generate(body)
            size, _ = measure(said.inputs)
        except BROKEN:
            return self.guess(call, len(body))
        limits = said.parameters or _Parameters()
        features = (bounded(size), bounded(given(limits.max_new_tokens, TOKENS)), bounded(given(limits.best_of, 1.0)))
        return Peek("", features, streams=True)

    def guess(self, call: Call, length: int, head: bytes = b"", headers: Mapping[bytes, bytes] = {}) -> Peek:
        if call.kind != "generate":
            return super().guess(call, length, head, headers)
        return Peek("", (min(bounded(float(length)), LONG), TOKENS, 1.0), streams=True)
