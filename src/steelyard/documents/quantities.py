"""Types that JSON lacks: durations, sizes and shares."""

from __future__ import annotations

from typing import Any

from ..units import parse_duration, parse_share, parse_size
from .tagged import is_tagged, read_tagged

UNSET: Any = object()  # the value of a variable that is not set


class Seconds(float):
    """`200ms`, `1.5s`, or a number of seconds. `bare`: without a unit."""

    bare = False


class Size(int):
    """`64KiB`, `80GiB`, or a number of bytes."""


class Share(float):
    """`10%` or `0.1`."""


def decode_value(kind: type[Any], value: Any) -> Any:
    """The `dec_hook` of msgspec. ValueError says what is wrong."""
    if kind is Seconds:
        if not isinstance(value, str | int | float):
            raise ValueError("write a duration, for example 200ms, 1.5s or 2m")
        seconds = Seconds(parse_duration(value))
        seconds.bare = not isinstance(value, str) or value.strip()[-1:].isdecimal()
        return seconds
    if kind is Size:
        return Size(parse_size(value))
    if kind is Share:
        return Share(parse_share(value))
    if is_tagged(kind):
        return read_tagged(kind, value, decode_value)
    raise NotImplementedError(f"no way to read a {kind.__name__}")


def encode_value(value: Any) -> Any:
    """The `enc_hook` of msgspec, which does not take subclasses of numbers."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value)
    raise NotImplementedError(f"no way to write a {type(value).__name__}")
