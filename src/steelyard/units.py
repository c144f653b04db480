"""Durations, sizes and shares as people write them: `200ms`, `80GiB`, `10%`."""

from __future__ import annotations

import re
from math import isfinite

# The micro sign and the Greek letter look the same and are both on keyboards.
SECONDS_PER_UNIT = {"us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES_PER_UNIT = {"": 1, "B": 1, "kB": 1000} | {
    f"{letter}{end}": base**power for power, letter in enumerate("KMGT", 1) for end, base in (("B", 1000), ("iB", 1024))
}
MAX_SIZE_BYTES = (1 << 63) - 1  # bytes: what file systems and messages can count
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµμ%]*)\s*")


def parse_duration(value: str | int | float) -> float:
    """Seconds, from `200ms`, `1.5s`, `2m`; a bare number is seconds. ValueError says what is wrong."""
    wrong = f"{_short(value)} is not a duration: write for example 200ms, 1.5s or 2m"
    if isinstance(value, bool):
        raise ValueError(wrong)
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None or (match[2] and match[2] not in SECONDS_PER_UNIT):
            raise ValueError(wrong)
        seconds = float(match[1]) * SECONDS_PER_UNIT[match[2] or "s"]
    else:
        seconds = _float(value)
    if not isfinite(seconds) or seconds < 0:
        raise ValueError(f"{_short(value)} is not a duration: it must be zero or more seconds")
    return seconds


def parse_size(value: str | int) -> int:
    """Bytes, from `64KiB`, `1.5GB`; a bare number is bytes. ValueError says what is wrong."""
    wrong = f"{_short(value)} is not a size: write for example 64KiB, 10MiB or 80GiB"
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(wrong)
    amount: int | float = value if isinstance(value, int) else 0
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None or match[2] not in BYTES_PER_UNIT:
            raise ValueError(wrong)
        amount = float(match[1]) if "." in match[1] or len(match[1]) > 20 else int(match[1])
        amount *= BYTES_PER_UNIT[match[2]]
    if not 0 <= amount <= MAX_SIZE_BYTES:
        raise ValueError(f"{_short(value)} is not a size: it must be from 0 to {format_size(MAX_SIZE_BYTES)}")
    return round(amount)


def parse_share(value: str | int | float) -> float:
    """A share from 0 to 1, from `10%` or `0.1`. ValueError says what is wrong."""
    wrong = f"{_short(value)} is not a share: write for example 10% or 0.1"
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(wrong)
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None or match[2] not in ("", "%"):
            raise ValueError(wrong)
        value = float(match[1]) / (100.0 if match[2] else 1.0)
    if not 0.0 <= value <= 1.0:
        raise ValueError(wrong)
    return float(value)


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # an int of hundreds of digits
        return float("inf")


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 999 else "a number of hundreds of digits"
    return text if len(text) <= 60 else f"{text[:57]}…"


def format_size(amount: int) -> str:
    """A size for people: three digits and the binary unit that fits."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if amount >= BYTES_PER_UNIT[unit]:
            text = _three_digits(amount / BYTES_PER_UNIT[unit])
            return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
    return f"{amount} B"


def format_seconds(seconds: float) -> str:
    """A duration for people: three digits and the unit that fits."""
    if seconds != seconds:
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale or unit == "µs":
            return f"{_three_digits(seconds / scale)} {unit}"
    raise AssertionError("unreachable")


def format_duration(seconds: float) -> str:
    """A longer duration for people, in whole units: 45 s, 3 min, 2 h, 5 d."""
    for unit, scale in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _three_digits(amount: float) -> str:
    digits = 0 if amount >= 100 else 1 if amount >= 10 else 2
    return f"{amount:.{digits}f}"
