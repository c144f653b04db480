"""Text Generation Inference: OpenAI's endpoints, and its own older ones, which name no model."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw, Struct, json

from ..base import ApiCall, BodyInfo, bound_feature
from ..bodies.schemas import NO_VALUE
from ..bodies.text import DECODE_ERRORS, measure_field, number_or
from ..load import MetricsLocation
from .openai import MAX_UNREAD_CHARS, OpenAI

TGI_PATHS = frozenset(("/generate", "/generate_stream", ""))  # POST / is either of the two
DEFAULT_NEW_TOKENS = 100.0  # its default of max_new_tokens


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

    def read_body(self, call: ApiCall, body: bytes, headers: Mapping[bytes, bytes]) -> BodyInfo:
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

    def estimate_body(
        self, call: ApiCall, length: int, head: bytes = b"", headers: Mapping[bytes, bytes] = {}
    ) -> BodyInfo:
        if call.kind != "generate":
            return super().estimate_body(call, length, head, headers)
        return BodyInfo(
            "", (min(bound_feature(float(length)), MAX_UNREAD_CHARS), DEFAULT_NEW_TOKENS, 1.0), streams=True
        )
