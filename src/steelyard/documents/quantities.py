"""The types of a document that JSON has not: durations, sizes and shares, as people write them."""

from __future__ import annotations

from typing import Any

from ..units import parse_duration, parse_share, parse_size
from .tagged import is_tagged, read_tagged

UNSET: Any = object()  # a value that needs a variable which is not set


class Seconds(float):
    """A duration in a document: `200ms`, `1.5s`, or a number of seconds. `bare`: it was written without a unit."""

    bare = False


class Size(int):
    """A number of bytes in a document: `64KiB`, `80GiB`, or a number."""


class Share(float):
    """A part of the whole in a document: `10%` or `0.1`."""


def decode_value(kind: type[Any], value: Any) -> Any:
    """How the types of this module, and objects that come in kinds, are read; ValueError says what is wrong."""
    if kind is Seconds:
        if not isinstance(value, str | int | float):
            raise ValueError("write a duration, for example 200ms, 1.5s or 2m")
        seconds = Seconds(parse_duration(value))
        if not isinstance(value, str) or value.strip()[-1:].isdecimal():
            seconds.bare = True
        return seconds
    if kind is Size:
        return Size(parse_size(value))
    if kind is Share:
        return Share(parse_share(value))
    if is_tagged(kind):
        return read_tagged(kind, value, decode_value)
    raise NotImplementedError(f"no way to read a {kind.__name__}")


def encode_value(value: Any) -> Any:
    """How the types of this module are written; msgspec does not take subclasses of numbers by itself."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value)
    raise NotImplementedError(f"no way to write a {type(value).__name__}")
