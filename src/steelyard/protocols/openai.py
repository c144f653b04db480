"""OpenAI's endpoints, as vLLM, SGLang, TGI and others serve them, with their neighbours by Anthropic and Cohere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import ANY, LOOKS, REPEATABLE, Answer, Call, Dialect, ModelView, Peek, bounded, to_json, unescaped
from .doubts import json_doubt
from .multipart import form_doubt, form_field
from .openai_body import model_in, talk, words
from .text import OUTPUT

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
TALK = frozenset(("chat", "responses", "messages"))
FORMS = frozenset(("transcriptions", "translations", "image_edits", "videos"))  # may be multipart/form-data
# What these leave behind on the replica (a stored response, a job, what a tool of the server did) would be there twice.
KEEPING = frozenset(("responses", "videos"))
# Collections that live on one replica. Below them, and below the endpoints above, all is theirs.
STORED = (
    *("assistants", "batches", "containers", "conversations", "evals", "files", "fine_tuning", "threads", "uploads"),
    *("vector_stores", "load_lora_adapter", "unload_lora_adapter"),
)
LONG = 262_144.0  # characters: what a conversation too large to be read is taken for; the rest will be pictures

_CODES = {"unknown_model": "model_not_found"}  # where OpenAI has a word of its own
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class OpenAI(Dialect):
    name = "openai"
    wanted_headers = (b"content-type",)
    tells_streams = True

    def call(self, method: str, path: str) -> Call | None:
        place = path.rstrip("/")
        if place == "/v1/models":
            return Call("models", idempotent=method in REPEATABLE, local=method in LOOKS)
        if place.startswith("/v1/models/"):
            if method == "POST":
                return None  # /v1/models/m:predict is another protocol's: KServe v1, TensorFlow Serving
            model = unescaped(place.removeprefix("/v1/models/"))
            return Call("model", model, idempotent=method in REPEATABLE, local=method in LOOKS)
        kind = ENDPOINTS.get(place)
        if kind is not None and method == "POST":
            return Call(kind, reads_body=True, idempotent=kind not in KEEPING)
        if kind is not None or f"{place}/".startswith(_BELOW):
            return Call("other", idempotent=method in REPEATABLE)
        return None

    def answer(self, call: Call, path: str, models: Sequence[ModelView]) -> Answer | None:
        if not call.local or any(model.name == ANY for model in models):
            return None  # who takes every name knows best which names it has
        if call.kind == "models":
            return Answer(200, to_json({"object": "list", "data": [_shown(model) for model in models]}))
        for model in models:
            if model.name == call.model:
                return Answer(200, to_json(_shown(model)))
        return self.error(404, "unknown_model", f"The model '{call.model}' does not exist.")

    def peek(self, call: Call, body: bytes, headers: Mapping[bytes, bytes]) -> Peek:
        kind = call.kind
        if kind in TALK:
            return talk(body)
        if kind in FORMS and _is_form(headers):
            model = form_field(body, headers[b"content-type"], b"model") or ""
            return Peek(model, (bounded(float(len(body))), 0.0, 1.0))
        return words(body, kind) if call.reads_body else self.guess(call, len(body), body, headers)

    def doubt(self, call: Call, body: bytes, headers: Mapping[bytes, bytes]) -> str:
        if not call.reads_body:
            return ""
        content_type = headers.get(b"content-type", b"")
        if call.kind in FORMS and _is_form(headers):
            return form_doubt(body, content_type, b"model")
        return json_doubt(body, content_type)

    def guess(self, call: Call, length: int, head: bytes = b"", headers: Mapping[bytes, bytes] = {}) -> Peek:
        size = bounded(float(length))
        if call.kind in TALK:
            return Peek(model_in(head), (min(size, LONG), OUTPUT, 1.0), streams=True, certain=not head)
        if call.kind in FORMS and _is_form(headers):
            model = form_field(head, headers[b"content-type"], b"model") or ""
            return Peek(model, (size, 0.0, 1.0), certain=not head)
        model = model_in(head) if call.reads_body else ""
        return Peek(model, (size, 0.0, 1.0), certain=not head or not call.reads_body)

    def error(self, status: int, code: str, sentence: str) -> Answer:
        kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
        problem = {
            "message": sentence,
            "type": kind,
            "param": "model" if code == "unknown_model" else None,
            "code": _CODES.get(code, code),
        }
        return Answer(status, to_json({"error": problem}))


def _is_form(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-type", b"")[:10].lower() == b"multipart/"


def _shown(model: ModelView) -> dict[str, str | int]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "steelyard"}


_BELOW = (*(f"/v1/{name}/" for name in STORED), *(f"{place}/" for place in ENDPOINTS))
