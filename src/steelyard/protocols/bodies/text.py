"""The amount of text, in the many shapes that endpoints take."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

from .schemas import ContentItem

DEFAULT_OUTPUT_TOKENS = 1024.0  # of a request without a limit
MEDIA_CHARS = 2048.0  # that a picture, a sound or a film counts as: some 500 tokens
MAX_ITEMS = 1024  # messages or parts; of more, only every second, third… is read, to keep the loop free
DECODE_ERRORS = (ValueError, RecursionError, OverflowError)  # of decoders

decode_string = msgspec.json.Decoder(str).decode
_strings = msgspec.json.Decoder(list[str]).decode
_items = msgspec.json.Decoder(list[ContentItem | str]).decode
_raws = msgspec.json.Decoder(list[Raw]).decode
_FIRST = re.compile(rb"[\[\s]*([^\[\s])")


def number_or(number: float | None, otherwise: float) -> float:
    """A number below zero counts as not given: some clients say -1 for "no limit"."""
    return number if number is not None and number >= 0.0 else otherwise


def text_chars(content: str | list[Any], nothing: float = 0.0) -> float:
    """Of messages or parts; `nothing` for each without text."""
    if isinstance(content, str):
        return float(len(content))
    total = 0.0
    step = 1 + len(content) // MAX_ITEMS
    for item in content[::step] if step > 1 else content:
        total += len(item) if isinstance(item, str) else _item_chars(item) or nothing
    return total * step


def _item_chars(item: ContentItem) -> float:
    content, text, output, arguments, thinking, given, tool_calls = astuple(item)
    size = float(len(tool_calls) + len(given))
    if content is not None:
        size += text_chars(content, MEDIA_CHARS)
    if text is not None:
        size += len(text)
    if output is not None:
        size += text_chars(output, MEDIA_CHARS)
    if arguments is not None:
        size += len(arguments)
    if thinking is not None:
        size += len(thinking)
    return size


def measure_field(field: Raw) -> tuple[float, int]:
    """Characters (or token ids, of numbers) and pieces, whatever the field's shape."""
    text = bytes(field)
    if text.startswith(b'"'):
        return float(len(decode_string(text))), 1
    if not text.startswith(b"["):
        return (0.0 if text in (b"null", b"") else float(len(text))), 1
    match = _FIRST.match(text)
    first = match[1] if match else b"]"
    if first == b"]":
        return 0.0, 1
    if first in b"-0123456789":
        return text.count(b",") + 1.0, max(1, text.count(b"[") - 1)
    try:
        if first == b'"':
            strings = _strings(text)
            return float(sum(map(len, strings))), len(strings)
        items = _items(text)
        return text_chars(items, MEDIA_CHARS), len(items)
    except DECODE_ERRORS:
        pieces = _raws(text)
        return float(sum(map(len, pieces))), len(pieces)
