"""Tokens of an answer, as the engine says, or as far as they can be counted.

An answer goes through in pieces and is never parsed as a whole: only its first and its last 4 KiB are looked at, for
the numbers of `usage` (OpenAI's, Anthropic's), `meta_info` (SGLang) or `details` (TGI). A quote within a text is
escaped in JSON, so text cannot look like these. A stream without such numbers counts an output token for each event
with content. Engines send one or more tokens an event, so that is a lower bound; and the prompt's tokens stay unknown.
"""

from __future__ import annotations

import re
from typing import Final

from ...core.prompt import TokenUsage

READ_BYTES: Final = 4096  # at the beginning, and at the end
MAX_USAGE_BYTES: Final = 2048
EVENT: Final = b"data:"
_MARK: Final = b'_tokens"'  # in all that matters
_PLACES: Final = (b'"usage"', b'"meta_info"', b'"details"')
# Whole numbers, not cut in two by a chunk.
_NUMBER: Final = re.compile(
    rb'"(prompt_tokens|input_tokens|input_length|completion_tokens|output_tokens|generated_tokens|cached_tokens'
    rb'|cache_read_input_tokens|cache_creation_input_tokens|total_tokens)"\s*:\s*(\d{1,9})(?=\s*[,}])'
)
_MODEL: Final = re.compile(rb'"model"\s*:\s*"([^"\\]{1,256})"')
_JSON: Final = re.compile(rb"(?:[0-9A-Fa-f]+[^\r\n]*\r\n)?\s*[\[{]")  # perhaps in a chunk
_CONTENT: Final = re.compile(
    rb'"(?:content|text|reasoning_content|reasoning|delta|arguments|partial_json|thinking)"\s*:\s*"[^"]'
    rb'|"token"\s*:\s*\{'
)


def read_usage(body: bytes) -> TokenUsage | None:
    """Of a whole answer, or its end."""
    if body.rfind(_MARK, -READ_BYTES) >= 0 and (numbers := _last_numbers(body)):
        return _usage(numbers, 0)
    if len(body) > READ_BYTES and (numbers := _first_numbers(body)):
        return _usage(numbers, 0)
    return None


class AnswerTokens:
    """Of an answer that comes in pieces."""

    __slots__ = ("_events", "_head", "_last", "_size", "_streamed", "_tail")

    def __init__(self, may_stream: bool) -> None:
        self._streamed = may_stream
        self._events = 0
        self._size = 0
        self._head = b""
        self._tail = b""
        self._last = b""  # bytes of a line that goes on in the next piece

    def feed(self, data: bytes) -> None:
        if not self._size and self._streamed and _JSON.match(data) is not None:
            self._streamed = False
        if len(self._head) < READ_BYTES:
            self._head += data[: READ_BYTES - len(self._head)]
        self._size += len(data)
        if self._streamed:
            self._events += data.count(EVENT)
            if self._last:
                self._events += (self._last + data[:4]).count(EVENT)
            if data[-1:] == b"\n":
                self._last = b""
            else:
                self._last = data[-4:] if len(data) >= 4 else (self._last + data)[-4:]
        self._tail = (self._tail + data)[-READ_BYTES:] if len(data) < READ_BYTES else data[-READ_BYTES:]

    def usage(self) -> TokenUsage | None:
        """None: it says nothing."""
        tail = self._tail
        numbers = _last_numbers(tail)
        if "prompt" not in numbers:  # Anthropic's streams begin with it, some rerankers' answers
            numbers = {**_first_numbers(self._head), **numbers}
        output = 0
        if "output" not in numbers and self._streamed:
            before = min(READ_BYTES, self._size - len(tail))
            output = self._events - _empty_events(tail) - _empty_events(self._head[:before])
        return _usage(numbers, max(0, output)) if numbers or output > 0 else None

    def model(self) -> str:
        """That the engine says it ran; empty: it does not say, near the beginning."""
        match = _MODEL.search(self._head, 0, READ_BYTES)
        return match[1].decode("utf-8", "replace") if match is not None else ""


def _empty_events(text: bytes) -> int:
    """Those without content: of the role, of the end, of `usage`."""
    events = text.split(EVENT)[1:]
    return len([event for event in events if b"\n" in event and _CONTENT.search(event) is None])


def _last_numbers(text: bytes) -> dict[str, int]:
    for place in _PLACES:
        at = text.rfind(place, -READ_BYTES)
        for _ in range(2):  # the last may be null
            if at < 0:
                break
            numbers = _numbers(text, at)
            if numbers:
                return numbers
            at = text.rfind(place, -READ_BYTES, at)
    return {}


def _first_numbers(text: bytes) -> dict[str, int]:
    at = text.find(_PLACES[0], 0, READ_BYTES)
    return _numbers(text, at) if at >= 0 else {}


def _numbers(text: bytes, at: int) -> dict[str, int]:
    said = {name: int(number) for name, number in _NUMBER.findall(text, at, at + MAX_USAGE_BYTES)}
    numbers: dict[str, int] = {}
    for what, names in _NAMES:
        for name in names:
            if name in said:
                numbers[what] = said[name]
                break
    if b"cache_read_input_tokens" in said and "prompt" in numbers:  # Anthropic counts those apart
        numbers["prompt"] += said[b"cache_read_input_tokens"] + said.get(b"cache_creation_input_tokens", 0)
    if "prompt" not in numbers and "output" not in numbers and b"total_tokens" in said:
        numbers["prompt"] = said[b"total_tokens"]
    return numbers


_NAMES: Final = (
    ("prompt", (b"prompt_tokens", b"input_tokens", b"input_length")),
    ("output", (b"completion_tokens", b"output_tokens", b"generated_tokens")),
    ("cached", (b"cached_tokens", b"cache_read_input_tokens")),
)


def _usage(numbers: dict[str, int], counted: int) -> TokenUsage:
    return TokenUsage(numbers.get("prompt", 0), numbers.get("output", counted), numbers.get("cached", 0))
