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
    user: str | None = None
    previous_response_id: str | None = None


class PromptedConversation(Struct, gc=False):
    """A conversation whose texts stay as they are: its prompt is hashed, not measured by characters."""

    model: str | None = None
    messages: Raw = NO_VALUE
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    max_output_tokens: float | None = None
    n: float | None = None
    tools: Raw = NO_VALUE
    functions: Raw = NO_VALUE
    input: Raw = NO_VALUE
    instructions: Raw = NO_VALUE
    system: Raw = NO_VALUE
    prompt_cache_key: str | None = None
    stream: bool | None = None
    user: str | None = None
    previous_response_id: str | None = None
    cache_salt: Raw = NO_VALUE
    lora_path: Raw = NO_VALUE


class PromptPart(Struct, gc=False):
    """As much of a message or a part as tells of media in it."""

    type: str | None = None
    content: Raw = NO_VALUE
    output: Raw = NO_VALUE


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
    user: str | None = None
    cache_salt: Raw = NO_VALUE
    lora_path: Raw = NO_VALUE


class SamplingParams(Struct, gc=False):
    max_new_tokens: float | None = None
    n: float | None = None


class SglangRequest(Struct, gc=False):
    """Of SGLang's own /generate."""

    text: Raw = NO_VALUE
    input_ids: Raw = NO_VALUE
    image_data: Raw = NO_VALUE
    audio_data: Raw = NO_VALUE
    sampling_params: SamplingParams | list[SamplingParams] | None = None
    stream: bool | None = None
    cache_salt: Raw = NO_VALUE
    lora_path: Raw = NO_VALUE


class TgiParameters(Struct, gc=False):
    max_new_tokens: float | None = None
    best_of: float | None = None
    adapter_id: Raw = NO_VALUE


class TgiRequest(Struct, gc=False):
    """Of TGI's /generate, /generate_stream and /."""

    inputs: Raw = NO_VALUE
    parameters: TgiParameters | None = None
    stream: bool | None = None


decode_conversation = msgspec.json.Decoder(Conversation).decode
decode_prompted_conversation = msgspec.json.Decoder(PromptedConversation).decode
decode_text_request = msgspec.json.Decoder(TextRequest).decode
decode_prompt_parts = msgspec.json.Decoder(list[PromptPart | str]).decode
decode_sglang_request = msgspec.json.Decoder(SglangRequest).decode
decode_tgi_request = msgspec.json.Decoder(TgiRequest).decode
