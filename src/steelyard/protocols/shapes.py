"""The few fields of JSON bodies that matter, as types; msgspec skips the others.

Apart from what reads them, because mypyc cannot compile these classes: see setup.py.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

NOTHING = Raw(b"")


class Item(Struct, gc=False):
    """A message, an item of /v1/responses, or a part of either."""

    content: str | list[Item | str] | None = None
    text: str | None = None
    output: str | list[Item | str] | None = None
    arguments: str | None = None
    thinking: str | None = None
    input: Raw = NOTHING
    tool_calls: Raw = NOTHING


Content = str | list[Item | str] | None


class Talk(Struct, gc=False):
    model: str | None = None
    messages: list[Item] | None = None
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    max_output_tokens: float | None = None
    n: float | None = None
    tools: Raw = NOTHING
    input: Content = None
    instructions: str | None = None
    system: Content = None
    prompt_cache_key: str | None = None
    stream: bool | None = None


class Words(Struct, gc=False):
    model: str | None = None
    prompt: Raw = NOTHING
    input: Raw = NOTHING
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    n: float | None = None
    best_of: float | None = None
    query: Raw = NOTHING
    documents: Raw = NOTHING
    items: Raw = NOTHING
    text_1: Raw = NOTHING
    text_2: Raw = NOTHING
    texts: Raw = NOTHING
    inputs: Raw = NOTHING
    tokens: Raw = NOTHING
    messages: Raw = NOTHING
    size: str | None = None
    num_inference_steps: float | None = None
    prompt_cache_key: str | None = None
    stream: bool | None = None


decode_talk = msgspec.json.Decoder(Talk).decode
decode_words = msgspec.json.Decoder(Words).decode
