"""Periods of time as people write them, cut into steps. All in UTC."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from ...core.errors import OptionError
from ...units import parse_duration
from .slices import HOUR_SECONDS, MINUTE_SECONDS, Slice

STEP_WIDTHS_SECONDS: Final = (
    *(minutes * MINUTE_SECONDS for minutes in (1, 5, 15)),
    *(hours * HOUR_SECONDS for hours in (1, 6, 24, 7 * 24)),
)
MAX_STEPS: Final = 100  # in a chart
UNWRITTEN_SECONDS: Final = 3 * MINUTE_SECONDS  # the last minutes may not be written yet


def parse_time(option: str, text: str, now: float) -> float:
    """`24h`, `7d` ago, or `2026-11-01`, `2026-11-01T08:00`, UTC by default; clipped to 1970 … now."""
    try:
        if "-" not in text:
            return max(now - parse_duration(text), 0.0)
        when = datetime.fromisoformat(text)
        return min(max((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp(), 0.0), now)
    except (ValueError, OverflowError):
        raise OptionError(
            f"{option} {text!r} is no time: write for example 24h, 7d, 2026-11-01 or 2026-11-01T08:00"
        ) from None


def format_time(seconds: float, precise: bool = True) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M" if precise else "%Y-%m-%d")


def format_span(seconds: float) -> str:
    """A long duration for people: 45 min, 23 h 40 min, 12 d."""
    minutes = round(seconds / MINUTE_SECONDS)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24) if hours >= 48 else (0, hours)
    parts = [f"{number} {unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if number]
    return " ".join(parts[:2]) or "0 min"


def step_width(since: float, until: float, finest: int) -> int:
    """Seconds of a step: at most MAX_STEPS steps, none finer than what is kept."""
    return next(
        (w for w in STEP_WIDTHS_SECONDS if w >= finest and (until - since) / w <= MAX_STEPS),
        max(finest, STEP_WIDTHS_SECONDS[-1]),
    )


def gaps(slices: Iterable[Slice], since: float, until: float, now: float) -> list[tuple[int, int, int]]:
    """Where no gateway ran: from, to, and minutes of it; fewer than all where only hours are left."""
    times: dict[int, tuple[int, int]] = {}
    for part in _ignoring_targets(slices):
        step, ran = times.get(part.start, (part.step, 0))
        times[part.start] = (max(step, part.step), max(ran, part.ran))
    result: list[tuple[int, int, int]] = []
    at = int(since // MINUTE_SECONDS) * MINUTE_SECONDS
    for start, (step, ran) in sorted(times.items()):
        if start > at:
            result.append((at, start, (start - at) // MINUTE_SECONDS))
        if ran < step // MINUTE_SECONDS and start + step <= now - UNWRITTEN_SECONDS:
            result.append((start, start + step, step // MINUTE_SECONDS - ran))
        at = max(at, start + step)
    end = int(min(until, now - UNWRITTEN_SECONDS) // MINUTE_SECONDS) * MINUTE_SECONDS
    if end > at:
        result.append((at, end, (end - at) // MINUTE_SECONDS))
    return result


def _ignoring_targets(slices: Iterable[Slice]) -> list[Slice]:
    """In an hour in which a target changed, the minutes before and after add up."""
    result: dict[tuple[int, int, str, str], Slice] = {}
    for part in slices:
        key = part.key[:4]
        ran = min(part.ran + (result[key].ran if key in result else 0), part.step // MINUTE_SECONDS)
        result[key] = msgspec.structs.replace(part, ran=ran)
    return list(result.values())
