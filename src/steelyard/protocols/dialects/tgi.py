"""Text Generation Inference: OpenAI's endpoints, and older ones that name no model."""

from __future__ import annotations

from ..base import NO_HEADERS, ApiCall, BodyInfo, Headers, bound_feature
from ..bodies.prompts import PromptText
from ..bodies.schemas import TgiParameters, decode_tgi_request
from ..bodies.text import DECODE_ERRORS, measure_field, number_or
from ..load import MetricsLocation
from .openai import MAX_UNREAD_CHARS, PROMPT_KINDS, OpenAI

TGI_PATHS = frozenset(("/generate", "/generate_stream", ""))  # POST / is either
DEFAULT_NEW_TOKENS = 100.0  # of max_new_tokens


class Tgi(OpenAI):
    name = "tgi"
    prompt_kinds = PROMPT_KINDS | {"generate"}
    metrics = MetricsLocation()

    def call(self, method: str, path: str) -> ApiCall | None:
        if method == "POST" and path.rstrip("/") in TGI_PATHS:
            streams = path.rstrip("/") == "/generate_stream"
            return ApiCall("generate", reads_body=True, idempotent=True, streams=streams)
        return super().call(method, path)

    def read_body(self, call: ApiCall, body: bytes, headers: Headers) -> BodyInfo:
        if call.kind != "generate":
            return super().read_body(call, body, headers)
        try:
            said = decode_tgi_request(body)
            size, _ = measure_field(said.inputs)
            limits = said.parameters or TgiParameters()
            prompt = PromptText(limits.adapter_id) if call.with_prompt else None
            if prompt is not None:
                prompt.add(said.inputs)
        except DECODE_ERRORS:
            return self.estimate_body(call, len(body))
        features = (
            bound_feature(size),
            bound_feature(number_or(limits.max_new_tokens, DEFAULT_NEW_TOKENS)),
            bound_feature(number_or(limits.best_of, 1.0)),
        )
        return BodyInfo("", features, streams=call.streams or said.stream is True, prompt=prompt)

    def estimate_body(self, call: ApiCall, length: int, head: bytes = b"", headers: Headers = NO_HEADERS) -> BodyInfo:
        if call.kind != "generate":
            return super().estimate_body(call, length, head, headers)
        size = min(bound_feature(float(length)), MAX_UNREAD_CHARS)
        return BodyInfo("", (size, DEFAULT_NEW_TOKENS, 1.0), streams=True)
