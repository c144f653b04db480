"""SGLang: OpenAI's endpoints, /generate of its own, which names no model, and a readiness of its own."""

from __future__ import annotations

from ..base import NO_HEADERS, ApiCall, BodyInfo, Headers, bound_feature
from ..bodies.prompts import AUDIO_TOKENS, IMAGE_TOKENS, PromptText
from ..bodies.schemas import SamplingParams, decode_sglang_request
from ..bodies.text import DECODE_ERRORS, measure_field, number_or
from ..health import ProbePlan, ServerRequest
from ..load import MetricsLocation
from .openai import MAX_UNREAD_CHARS, PROMPT_KINDS, OpenAI

# Generates a token unless one is under way. Older versions answer `/health` with 200 while they load, newer ones with
# 503: neither proves life, but any answer does.
GENERATE_REQUEST = ServerRequest("/health_generate", fallback=ServerRequest("/health"))
DEFAULT_NEW_TOKENS = 128.0  # of max_new_tokens


class Sglang(OpenAI):
    name = "sglang"
    metrics = MetricsLocation()
    prompt_kinds = PROMPT_KINDS | {"generate"}

    def call(self, method: str, path: str) -> ApiCall | None:
        if method == "POST" and path.rstrip("/") == "/generate":
            return ApiCall("generate", reads_body=True, idempotent=True)
        return super().call(method, path)

    def read_body(self, call: ApiCall, body: bytes, headers: Headers) -> BodyInfo:
        if call.kind != "generate":
            return super().read_body(call, body, headers)
        try:
            said = decode_sglang_request(body)
            (chars, texts), (ids, lists) = measure_field(said.text), measure_field(said.input_ids)
            prompt = PromptText(said.lora_path, said.cache_salt) if call.with_prompt else None
            if prompt is not None:
                prompt.add(said.text)
                prompt.add(said.input_ids)
                prompt.add_media(said.image_data, IMAGE_TOKENS)
                prompt.add_media(said.audio_data, AUDIO_TOKENS)
        except DECODE_ERRORS:
            return self.estimate_body(call, len(body))
        given = said.sampling_params
        limits = given if isinstance(given, SamplingParams) else given[0] if given else SamplingParams()
        features = (
            bound_feature(chars + ids),
            bound_feature(number_or(limits.max_new_tokens, DEFAULT_NEW_TOKENS)),
            bound_feature(number_or(limits.n, 1.0) * max(texts, lists)),
        )
        return BodyInfo("", features, streams=said.stream is True, prompt=prompt)

    def estimate_body(self, call: ApiCall, length: int, head: bytes = b"", headers: Headers = NO_HEADERS) -> BodyInfo:
        if call.kind != "generate":
            return super().estimate_body(call, length, head, headers)
        size = min(bound_feature(float(length)), MAX_UNREAD_CHARS)
        return BodyInfo("", (size, DEFAULT_NEW_TOKENS, 1.0), streams=True)

    def probe_plan(self, model: str) -> ProbePlan:
        return ProbePlan((GENERATE_REQUEST,))
