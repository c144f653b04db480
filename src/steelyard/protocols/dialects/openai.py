"""OpenAI's endpoints, as many servers have them, with some by Anthropic and Cohere."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import (
    ANY_MODEL,
    IDEMPOTENT_METHODS,
    NO_HEADERS,
    READ_METHODS,
    ApiCall,
    BodyInfo,
    Dialect,
    Headers,
    LocalReply,
    ServedModel,
    bound_feature,
    encode_json,
    unescape_name,
)
from ..bodies.ambiguity import json_ambiguity
from ..bodies.multipart import form_ambiguity, form_field
from ..bodies.openai import conversation_info, find_model, prompted_conversation_info, text_info
from ..bodies.text import DEFAULT_OUTPUT_TOKENS

ENDPOINTS = {  # POST; the model is named in the body
    "/v1/chat/completions": "chat",
    "/v1/chat/completions/batch": "chat_batch",
    "/v1/chat/completions/render": "render",
    "/v1/completions": "completions",
    "/v1/completions/render": "render",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "tokenize",
    "/v1/tokenize": "tokenize",
    "/v1/detokenize": "tokenize",
    "/v1/embeddings": "embeddings",
    "/v2/embed": "embeddings",
    "/v1/rerank": "rerank",
    "/v2/rerank": "rerank",
    "/v1/score": "score",
    "/v1/classify": "classify",
    "/v1/pooling": "pooling",
    "/v1/moderations": "moderations",
    "/v1/decisions": "decisions",
    "/v1/audio/transcriptions": "transcriptions",
    "/v1/audio/translations": "translations",
    "/v1/audio/speech": "speech",
    "/v1/images/generations": "images",
    "/v1/images/edits": "image_edits",
    "/v1/images/variations": "image_edits",
    "/v1/videos": "videos",
}
CONVERSATION_KINDS = frozenset(("chat", "responses", "messages"))
# Whose bodies have a prompt that an engine computes on.
PROMPT_KINDS = CONVERSATION_KINDS | frozenset(
    ("chat_batch", "completions", "embeddings", "rerank", "score", "classify", "pooling")
)
FORM_KINDS = frozenset(("transcriptions", "translations", "image_edits", "videos"))  # may be multipart/form-data
# Run twice, these would leave two stored responses or jobs.
STATEFUL_KINDS = frozenset(("responses", "videos"))
# Collections on one replica; all below them, and below the endpoints, is theirs.
STORED_COLLECTIONS = (
    *("assistants", "batches", "containers", "conversations", "evals", "files", "fine_tuning", "threads", "uploads"),
    *("vector_stores", "load_lora_adapter", "unload_lora_adapter"),
)
MAX_UNREAD_CHARS = 262_144.0  # of a conversation too large to read; the rest will be pictures

_CODES = {"unknown_model": "model_not_found"}  # OpenAI's own words
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class OpenAI(Dialect):
    name = "openai"
    wanted_headers = (b"content-type",)
    knows_streams = True
    prompt_kinds = PROMPT_KINDS
    generates_text = True

    def call(self, method: str, path: str) -> ApiCall | None:
        place = path.rstrip("/")
        if place == "/v1/models":
            return ApiCall("models", idempotent=method in IDEMPOTENT_METHODS, local=method in READ_METHODS)
        if place.startswith("/v1/models/"):
            if method == "POST":
                return None  # /v1/models/m:predict of KServe v1 and TensorFlow Serving
            model = unescape_name(place.removeprefix("/v1/models/"))
            return ApiCall("model", model, idempotent=method in IDEMPOTENT_METHODS, local=method in READ_METHODS)
        kind = ENDPOINTS.get(place)
        if kind is not None and method == "POST":
            return ApiCall(kind, reads_body=True, idempotent=kind not in STATEFUL_KINDS)
        if kind is not None or f"{place}/".startswith(_NESTED_PREFIXES):
            return ApiCall("other", idempotent=method in IDEMPOTENT_METHODS)
        return None

    def local_reply(self, call: ApiCall, path: str, models: Sequence[ServedModel]) -> LocalReply | None:
        if not call.local or any(model.name == ANY_MODEL for model in models):
            return None  # its replicas know their names
        if call.kind == "models":
            return LocalReply(200, encode_json({"object": "list", "data": [_model_object(model) for model in models]}))
        for model in models:
            if model.name == call.model:
                return LocalReply(200, encode_json(_model_object(model)))
        return self.error(404, "unknown_model", f"The model '{call.model}' does not exist.")

    def read_body(self, call: ApiCall, body: bytes, headers: Headers) -> BodyInfo:
        kind = call.kind
        if kind in CONVERSATION_KINDS:
            return prompted_conversation_info(body) if call.with_prompt else conversation_info(body)
        if kind in FORM_KINDS and _is_form(headers):
            model = form_field(body, headers[b"content-type"], b"model") or ""
            return BodyInfo(model, (bound_feature(float(len(body))), 0.0, 1.0))
        return (
            text_info(body, kind, call.with_prompt)
            if call.reads_body
            else self.estimate_body(call, len(body), body, headers)
        )

    def body_ambiguity(self, call: ApiCall, body: bytes, headers: Headers) -> str:
        if not call.reads_body:
            return ""
        content_type = headers.get(b"content-type", b"")
        if call.kind in FORM_KINDS and _is_form(headers):
            return form_ambiguity(body, content_type, b"model")
        return json_ambiguity(body, content_type)

    def estimate_body(self, call: ApiCall, length: int, head: bytes = b"", headers: Headers = NO_HEADERS) -> BodyInfo:
        size = bound_feature(float(length))
        if call.kind in CONVERSATION_KINDS:
            features = (min(size, MAX_UNREAD_CHARS), DEFAULT_OUTPUT_TOKENS, 1.0)
            return BodyInfo(find_model(head), features, streams=True, is_certain=not head)
        if call.kind in FORM_KINDS and _is_form(headers):
            model = form_field(head, headers[b"content-type"], b"model") or ""
            return BodyInfo(model, (size, 0.0, 1.0), is_certain=not head)
        model = find_model(head) if call.reads_body else ""
        return BodyInfo(model, (size, 0.0, 1.0), is_certain=not head or not call.reads_body)

    def error(self, status: int, code: str, sentence: str) -> LocalReply:
        kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
        param = "model" if code == "unknown_model" else None
        problem = {"message": sentence, "type": kind, "param": param, "code": _CODES.get(code, code)}
        return LocalReply(status, encode_json({"error": problem}))


def _is_form(headers: Headers) -> bool:
    return headers.get(b"content-type", b"")[:10].lower() == b"multipart/"


def _model_object(model: ServedModel) -> dict[str, str | int]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "steelyard"}


_NESTED_PREFIXES = (*(f"/v1/{name}/" for name in STORED_COLLECTIONS), *(f"{place}/" for place in ENDPOINTS))
