"""The fields of JSON bodies that matter. In a module of their own: mypyc cannot compile these classes (setup.py)."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

NO_VALUE = Raw(b"")


class ContentItem(Struct, gc=False):
    """A message, an item of /v1/responses, or a part of either."""

    content: str | list[ContentItem | str] | None = None
    text: str | None = None
    output: str | list[ContentItem | str] | None = None
    arguments: str | None = None
    thinking: str | None = None
    input: Raw = NO_VALUE
    tool_calls: Raw = NO_VALUE


Content = str | list[ContentItem | str] | None


class Conversation(Struct, gc=False):
    model: str | None = None
    messages: list[ContentItem] | None = None
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    max_output_tokens: float | None = None
    n: float | None = None
    tools: Raw = NO_VALUE
    input: Content = None
    instructions: str | None = None
    system: Content = None
    prompt_cache_key: str | None = None
    stream: bool | None = None


class TextRequest(Struct, gc=False):
    model: str | None = None
    prompt: Raw = NO_VALUE
    input: Raw = NO_VALUE
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    n: float | None = None
    best_of: float | None = None
    query: Raw = NO_VALUE
    documents: Raw = NO_VALUE
    items: Raw = NO_VALUE
    text_1: Raw = NO_VALUE
    text_2: Raw = NO_VALUE
    texts: Raw = NO_VALUE
    inputs: Raw = NO_VALUE
    tokens: Raw = NO_VALUE
    messages: Raw = NO_VALUE
    size: str | None = None
    num_inference_steps: float | None = None
    prompt_cache_key: str | None = None
    stream: bool | None = None


decode_conversation = msgspec.json.Decoder(Conversation).decode
decode_text_request = msgspec.json.Decoder(TextRequest).decode
