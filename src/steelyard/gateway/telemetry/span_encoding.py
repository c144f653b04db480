"""Spans in OTLP's protobuf. By hand, and compiled: protobuf's own messages were the largest part of what tracing costs
(docs/decisions/0019-spans-without-the-sdk.md)."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

Attributes = Mapping[str, str | int | float | bool]

# Of an enumeration: opentelemetry/proto/trace/v1/trace.proto
INTERNAL_SPAN: Final = 1
SERVER_SPAN: Final = 2
CLIENT_SPAN: Final = 3
_ERROR: Final = 2

_TIME: Final = Struct("<Q")
_DOUBLE: Final = Struct("<d")
_SMALL: Final = [bytes([n]) for n in range(128)]
_MAX_CACHED_KEYS: Final = 256  # names of attributes remembered
_names: Final[dict[str, bytes]] = {}


def encode_span(
    trace: bytes,
    id: bytes,
    parent: bytes,
    name: str,
    kind: int,
    began: int,
    ended: int,
    said: Attributes,
    error: str,
    first_byte: int,
) -> bytes:
    """Times in nanoseconds of the wall clock; `parent`: 8 bytes, or none; `error`: empty if it is none; `first_byte`: 0
    if none came."""
    parts = [b"\x0a\x10", trace, b"\x12\x08", id]
    if parent:
        parts += (b"\x22\x08", parent)
    parts += (field(b"\x2a", name.encode()), b"\x30", _SMALL[kind])
    parts += (b"\x39", _TIME.pack(began), b"\x41", _TIME.pack(ended))
    for key, value in said.items():
        parts.append(_pair(key, value))
    if first_byte:
        parts.append(field(b"\x5a", b"\x09" + _TIME.pack(first_byte) + b"\x12\x0afirst byte"))
    if error:
        parts.append(field(b"\x7a", field(b"\x12", error.encode()) + b"\x18" + _SMALL[_ERROR]))
    return b"".join(parts)


def field(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


def varint(value: int) -> bytes:
    if 0 <= value < 128:
        return _SMALL[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _pair(key: str, value: str | int | float | bool) -> bytes:
    name = _names.get(key)
    if name is None:
        name = field(b"\x0a", key.encode())
        if len(_names) < _MAX_CACHED_KEYS:
            _names[key] = name
    said = _value(value)
    size = len(said)
    whole = len(name) + size + 2
    if whole < 128:  # as most: nothing in it needs two bytes for its length
        return b"".join((b"\x4a", _SMALL[whole], name, b"\x12", _SMALL[size], said))
    return field(b"\x4a", name + field(b"\x12", said))


def _value(value: str | int | float | bool) -> bytes:
    if isinstance(value, str):
        return field(b"\x0a", value.encode())
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x18" + varint(value)
    return b"\x21" + _DOUBLE.pack(value)
