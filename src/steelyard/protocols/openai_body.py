"""What the bodies of OpenAI's endpoints tell: the model, how much goes in, how much may come out.

One typed decode with the few fields that matter; msgspec skips the others. A body that does not fit is looked at a
second time, field by field, and if it is no JSON at all, only for something like a model's name.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from .base import Peek, bounded
from .shapes import NOTHING, Words, decode_talk, decode_words
from .text import BROKEN, OUTPUT, amount, decode_string, given, measure

COMPLETION = 16.0  # tokens: the default of /v1/completions
PATCHES = 4096.0  # of 16×16 pixels: a picture of 1024×1024, the usual size
STEPS = 30.0  # of a picture that does not say how many


_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_scalar = msgspec.json.Decoder(str | float | None).decode
_MODEL = re.compile(rb'"model"\s*:\s*"((?:[^"\\]|\\.){0,512})"')
_SIZE = re.compile(r"(\d{1,6})x(\d{1,6})")
_TEXTS = (
    *("messages", "prompt", "input", "inputs", "query", "documents", "items", "texts", "text_1", "text_2"),
    *("system", "instructions"),
)
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_OUTPUTS = {"completions": COMPLETION, "chat_batch": OUTPUT, "images": PATCHES * STEPS}


def talk(body: bytes) -> Peek:
    """/v1/chat/completions, /v1/responses, /v1/messages."""
    try:
        said = decode_talk(body)
        size = float(len(said.tools))
        for content in (said.messages, said.input, said.system, said.instructions):
            if content is not None:
                size += amount(content)
    except BROKEN:
        return lenient(body, OUTPUT)
    limit = said.max_completion_tokens
    if limit is None:
        limit = said.max_tokens if said.max_tokens is not None else said.max_output_tokens
    return _told(said.model, size, given(limit, OUTPUT), given(said.n, 1.0), said.prompt_cache_key, said.stream is True)


def words(body: bytes, kind: str) -> Peek:
    """Every other endpoint with a JSON body: prompts, texts, pairs of texts."""
    try:
        said = decode_words(body)
        size, count = _sizes(said, kind)
    except BROKEN:
        return lenient(body, _OUTPUTS.get(kind, 0.0))
    output = _OUTPUTS.get(kind, 0.0)
    if kind == "images":
        output = _patches(said.size) * given(said.num_inference_steps, STEPS)
    elif output:
        limit = said.max_completion_tokens if said.max_completion_tokens is not None else said.max_tokens
        output = given(limit, output)
    many = max(given(said.n, 1.0), given(said.best_of, 0.0))
    return _told(said.model, size, output, many * count, said.prompt_cache_key, said.stream is True)


def lenient(body: bytes, output: float) -> Peek:
    """A second look at a body that surprised the first: each field for itself."""
    try:
        fields = _fields(body)
    except BROKEN:
        return Peek(model_in(body), (bounded(float(len(body))), output, 1.0), streams=True, certain=False)
    model, key = _alone(fields, "model"), _alone(fields, "prompt_cache_key")
    limit = next((limit for name in _LIMITS if (limit := _number(fields, name)) is not None), None)
    return _told(
        model if isinstance(model, str) else None,
        sum(_size(fields, name) for name in _TEXTS),
        given(limit, output),
        given(_number(fields, "n"), 1.0),
        key if isinstance(key, str) else None,
        "stream" in fields and bytes(fields["stream"]) == b"true",
    )


def model_in(text: bytes) -> str:
    """The first thing that looks like a model's name in what is no JSON, or only the beginning of one."""
    match = _MODEL.search(text)
    try:
        return decode_string(b'"' + match[1] + b'"') if match else ""
    except BROKEN:
        return ""


def _told(model: str | None, size: float, output: float, many: float, key: str | None, streams: bool) -> Peek:
    return Peek(model or "", (bounded(size), bounded(output), bounded(many)), key or None, streams)


def _sizes(said: Words, kind: str) -> tuple[float, int]:
    """How much text, and how many answers it asks for."""
    size, count = 0.0, 1
    for field in (
        said.prompt,
        said.input,
        said.documents,
        said.items,
        said.text_1,
        said.text_2,
        said.texts,
        said.inputs,
    ):
        if field is not NOTHING:
            more, pieces = measure(field)
            size, count = size + more, max(count, pieces)
    if said.query is not NOTHING:
        size += count * measure(said.query)[0]  # it is read with each document
    if said.tokens is not NOTHING:
        size += measure(said.tokens)[0]
    if said.messages is not NOTHING:
        more, pieces = measure(said.messages)
        size, count = size + more, pieces if kind == "chat_batch" else count  # else they are one conversation
    return size, count


def _patches(size: str | None) -> float:
    match = _SIZE.fullmatch(size or "")
    return int(match[1]) * int(match[2]) / 256.0 if match else PATCHES


def _alone(fields: dict[str, Raw], name: str) -> str | float | None:
    try:
        return _scalar(fields[name]) if name in fields else None
    except BROKEN:
        return None


def _size(fields: dict[str, Raw], name: str) -> float:
    try:
        return measure(fields[name])[0] if name in fields else 0.0
    except BROKEN:
        return float(len(fields[name]))


def _number(fields: dict[str, Raw], name: str) -> float | None:
    value = _alone(fields, name)
    try:
        return None if value is None else float(value)
    except BROKEN:
        return None
