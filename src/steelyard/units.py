"""Durations, sizes and shares as people write them: `200ms`, `80GiB`, `10%`."""

from __future__ import annotations

import re
from math import isfinite

SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ%]*)\s*")


def duration(value: str | int | float) -> float:
    """Seconds, from `200ms`, `1.5s`, `2m`; a bare number is seconds. ValueError says what is wrong."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a duration: write for example 200ms, 1.5s or 2m")
    if isinstance(value, int | float):
        if not isfinite(value) or value < 0:
            raise ValueError(f"{value!r} is not a duration: it must be zero or more seconds")
        return float(value)
    match = _QUANTITY.fullmatch(value)
    if match is None or (match[2] and match[2] not in SECONDS):
        raise ValueError(f"{value!r} is not a duration: write for example 200ms, 1.5s or 2m")
    return float(match[1]) * SECONDS[match[2] or "s"]


def show_seconds(seconds: float) -> str:
    """A duration for people: three digits and the unit that fits."""
    if seconds != seconds:
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale or unit == "µs":
            amount = seconds / scale
            digits = 0 if amount >= 100 else 1 if amount >= 10 else 2
            return f"{amount:.{digits}f} {unit}"
    raise AssertionError("unreachable")
