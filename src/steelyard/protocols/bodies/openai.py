"""Model and features from bodies of OpenAI's endpoints: input size, output limit, count.

One typed decode of the few fields that matter. A body that does not fit is read again, field by field, and one that
is no JSON is searched for a model's name.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from ..base import MAX_FEATURE, BodyInfo, bound_feature
from .prompts import PromptText
from .schemas import NO_VALUE, TextRequest, decode_conversation, decode_prompted_conversation, decode_text_request
from .text import DECODE_ERRORS, DEFAULT_OUTPUT_TOKENS, decode_string, measure_field, number_or, text_chars

DEFAULT_COMPLETION_TOKENS = 16.0  # of /v1/completions
DEFAULT_IMAGE_PATCHES = 4096.0  # of 16×16 pixels: a picture of 1024×1024
DEFAULT_IMAGE_STEPS = 30.0

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_scalar = msgspec.json.Decoder(str | float | None).decode
_MODEL = re.compile(rb'"model"\s*:\s*"((?:[^"\\]|\\.){0,512})"')
_SIZE = re.compile(r"(\d{1,6})x(\d{1,6})")
_TEXTS = (
    *("messages", "prompt", "input", "inputs", "query", "documents", "items", "texts", "text_1", "text_2"),
    *("system", "instructions"),
)
_KEYS = ("prompt_cache_key", "user", "previous_response_id")  # what a client says of its session, surest first
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_OUTPUTS = {
    "completions": DEFAULT_COMPLETION_TOKENS,
    "chat_batch": DEFAULT_OUTPUT_TOKENS,
    "images": DEFAULT_IMAGE_PATCHES * DEFAULT_IMAGE_STEPS,
}


def conversation_info(body: bytes) -> BodyInfo:
    """/v1/chat/completions, /v1/responses, /v1/messages."""
    try:
        said = decode_conversation(body)
        size = float(len(said.tools))
        for content in (said.messages, said.input, said.system, said.instructions):
            if content is not None:
                size += text_chars(content)
    except DECODE_ERRORS:
        return lenient_info(body, DEFAULT_OUTPUT_TOKENS)
    limit = said.max_completion_tokens
    if limit is None:
        limit = said.max_tokens if said.max_tokens is not None else said.max_output_tokens
    output, many = number_or(limit, DEFAULT_OUTPUT_TOKENS), number_or(said.n, 1.0)
    key = said.prompt_cache_key or said.user or said.previous_response_id
    return _body_info(said.model, size, output, many, key, said.stream is True)


def prompted_conversation_info(body: bytes) -> BodyInfo:
    """The same with the prompt, by which its size is measured in bytes."""
    try:
        said = decode_prompted_conversation(body)
        prompt = PromptText(said.lora_path, said.cache_salt)
        prompt.add(said.tools)
        prompt.add(said.functions)
        for content in (said.system, said.instructions, said.messages, said.input):
            if content is not NO_VALUE:
                prompt.add_conversation(content)
    except DECODE_ERRORS:
        return conversation_info(body)
    limit = said.max_completion_tokens
    if limit is None:
        limit = said.max_tokens if said.max_tokens is not None else said.max_output_tokens
    output, many = number_or(limit, DEFAULT_OUTPUT_TOKENS), number_or(said.n, 1.0)
    key = said.prompt_cache_key or said.user or said.previous_response_id
    return _body_info(said.model, prompt.chars, output, many, key, said.stream is True, prompt)


def text_info(body: bytes, kind: str, with_prompt: bool = False) -> BodyInfo:
    """Every other endpoint with a JSON body: prompts, texts, pairs of texts."""
    try:
        said = decode_text_request(body)
        size, count = _sizes(said, kind)
        prompt = _prompt(said, count) if with_prompt else None
    except DECODE_ERRORS:
        return lenient_info(body, _OUTPUTS.get(kind, 0.0))
    output = _OUTPUTS.get(kind, 0.0)
    if kind == "images":
        output = _patches(said.size) * number_or(said.num_inference_steps, DEFAULT_IMAGE_STEPS)
    elif output:
        limit = said.max_completion_tokens if said.max_completion_tokens is not None else said.max_tokens
        output = number_or(limit, output)
    many = max(number_or(said.n, 1.0), number_or(said.best_of, 0.0))
    key = said.prompt_cache_key or said.user
    return _body_info(said.model, size, output, many * count, key, said.stream is True, prompt)


def lenient_info(body: bytes, output: float) -> BodyInfo:
    """Each field for itself, where the typed decode failed."""
    try:
        fields = _fields(body)
    except DECODE_ERRORS:
        size = bound_feature(float(len(body)))
        return BodyInfo(find_model(body), (size, output, 1.0), streams=True, is_certain=False)
    model = _scalar_field(fields, "model")
    keys = (_scalar_field(fields, name) for name in _KEYS)
    limit = next((limit for name in _LIMITS if (limit := _number(fields, name)) is not None), None)
    return _body_info(
        model if isinstance(model, str) else None,
        sum(_size(fields, name) for name in _TEXTS),
        number_or(limit, output),
        number_or(_number(fields, "n"), 1.0),
        next((key for key in keys if isinstance(key, str) and key), None),
        "stream" in fields and bytes(fields["stream"]) == b"true",
    )


def find_model(text: bytes) -> str:
    """The first likely name of a model in what is no JSON, or only its beginning."""
    match = _MODEL.search(text)
    try:
        return decode_string(b'"' + match[1] + b'"') if match else ""
    except DECODE_ERRORS:
        return ""


def _body_info(
    model: str | None,
    size: float,
    output: float,
    many: float,
    key: str | None,
    streams: bool,
    prompt: PromptText | None = None,
) -> BodyInfo:
    if not (0.0 <= size <= MAX_FEATURE and 0.0 <= output <= MAX_FEATURE and 0.0 <= many <= MAX_FEATURE):
        size, output, many = bound_feature(size), bound_feature(output), bound_feature(many)
    return BodyInfo(model or "", (size, output, many), key or None, streams, prompt=prompt)


def _sizes(said: TextRequest, kind: str) -> tuple[float, int]:
    size, count = 0.0, 1
    texts = (said.prompt, said.input, said.documents, said.items, said.text_1, said.text_2, said.texts, said.inputs)
    for field in texts:
        if field is not NO_VALUE:
            more, pieces = measure_field(field)
            size, count = size + more, max(count, pieces)
    if said.query is not NO_VALUE:
        size += count * measure_field(said.query)[0]  # it is read with each document
    if said.tokens is not NO_VALUE:
        size += measure_field(said.tokens)[0]
    if said.messages is not NO_VALUE:
        more, pieces = measure_field(said.messages)
        size, count = size + more, pieces if kind == "chat_batch" else count  # else they are one conversation
    return size, count


def _prompt(said: TextRequest, count: int) -> PromptText:
    prompt = PromptText(said.lora_path, said.cache_salt)
    prompt.add(said.query, count)  # it is read with each document
    for field in (said.prompt, said.input, said.documents, said.items, said.text_1, said.text_2, said.texts):
        prompt.add(field)
    prompt.add(said.inputs)
    prompt.add_conversation(said.messages)
    return prompt


def _patches(size: str | None) -> float:
    match = _SIZE.fullmatch(size or "")
    return int(match[1]) * int(match[2]) / 256.0 if match else DEFAULT_IMAGE_PATCHES


def _scalar_field(fields: dict[str, Raw], name: str) -> str | float | None:
    try:
        return _scalar(fields[name]) if name in fields else None
    except DECODE_ERRORS:
        return None


def _size(fields: dict[str, Raw], name: str) -> float:
    try:
        return measure_field(fields[name])[0] if name in fields else 0.0
    except DECODE_ERRORS:
        return float(len(fields[name]))


def _number(fields: dict[str, Raw], name: str) -> float | None:
    value = _scalar_field(fields, name)
    try:
        return None if value is None else float(value)
    except DECODE_ERRORS:
        return None
