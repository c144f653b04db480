"""Text Generation Inference: OpenAI's endpoints, and older ones that name no model."""

from __future__ import annotations

from msgspec import Raw, Struct, json

from ..base import NO_HEADERS, ApiCall, BodyInfo, Headers, bound_feature
from ..bodies.schemas import NO_VALUE
from ..bodies.text import DECODE_ERRORS, measure_field, number_or
from ..load import MetricsLocation
from .openai import MAX_UNREAD_CHARS, OpenAI

TGI_PATHS = frozenset(("/generate", "/generate_stream", ""))  # POST / is either
DEFAULT_NEW_TOKENS = 100.0  # of max_new_tokens


class _Parameters(Struct, gc=False):
    max_new_tokens: float | None = None
    best_of: float | None = None


class _Generate(Struct, gc=False):
    inputs: Raw = NO_VALUE
    parameters: _Parameters | None = None


_generate = json.Decoder(_Generate).decode


class Tgi(OpenAI):
    name = "tgi"
    metrics = MetricsLocation()

    def call(self, method: str, path: str) -> ApiCall | None:
        if method == "POST" and path.rstrip("/") in TGI_PATHS:
            return ApiCall("generate", reads_body=True, idempotent=True)
        return super().call(method, path)

    def read_body(self, call: ApiCall, body: bytes, headers: Headers) -> BodyInfo:
        if call.kind != "generate":
            return super().read_body(call, body, headers)
        try:
            said = _generate(body)
            size, _ = measure_field(said.inputs)
        except DECODE_ERRORS:
            return self.estimate_body(call, len(body))
        limits = said.parameters or _Parameters()
        features = (
            bound_feature(size),
            bound_feature(number_or(limits.max_new_tokens, DEFAULT_NEW_TOKENS)),
            bound_feature(number_or(limits.best_of, 1.0)),
        )
        return BodyInfo("", features, streams=True)

    def estimate_body(self, call: ApiCall, length: int, head: bytes = b"", headers: Headers = NO_HEADERS) -> BodyInfo:
        if call.kind != "generate":
            return super().estimate_body(call, length, head, headers)
        size = min(bound_feature(float(length)), MAX_UNREAD_CHARS)
        return BodyInfo("", (size, DEFAULT_NEW_TOKENS, 1.0), streams=True)
