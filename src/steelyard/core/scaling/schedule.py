"""Schedules: times of the week that need more replicas. Minutes of the week count from Monday."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..errors import OptionError

MINUTES_PER_DAY = 24 * 60
MINUTES_PER_WEEK = 7 * MINUTES_PER_DAY
DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class WeeklyPeriod(NamedTuple):
    spans: tuple[tuple[int, int], ...]  # first minute of the week, and minutes it lasts
    min_replicas: int


def make_period(start: str, end: str, least: int, on: str = "") -> WeeklyPeriod:
    """From texts like `08:00`, `18:00` and `mon-fri`; an end before the start is on the next day."""
    begin, until = parse_time(start), parse_time(end)
    if begin == MINUTES_PER_DAY:
        raise OptionError("start: must be before 24:00, which is 00:00 of the next day")
    if begin == until:
        raise OptionError(f"end: must differ from start ({start}); a whole day is 00:00 to 24:00")
    if least < 0:
        raise OptionError(f"min: must be 0 or more, not {least!r}")
    lasts = (until - begin) % MINUTES_PER_DAY or MINUTES_PER_DAY
    return WeeklyPeriod(tuple((day * MINUTES_PER_DAY + begin, lasts) for day in parse_days(on)), least)


def scheduled_minimum(periods: Iterable[WeeklyPeriod], minute_of_week: float, ahead_minutes: float = 0.0) -> int:
    """The most that any period wants from now until `ahead_minutes` later; 0: none does."""
    return max((p.min_replicas for p in periods if _holds(p, minute_of_week, ahead_minutes)), default=0)


def _holds(period: WeeklyPeriod, now: float, ahead: float) -> bool:
    return any(
        (now - begin) % MINUTES_PER_WEEK < lasts or (begin - now) % MINUTES_PER_WEEK <= ahead
        for begin, lasts in period.spans
    )


def parse_time(text: str) -> int:
    """`08:30` → minutes since midnight; `24:00` is the end of a day."""
    hours, _, rest = text.strip().partition(":")
    if _is_number(hours, 1, 2) and _is_number(rest, 2, 2) and int(rest) < 60:
        total = int(hours) * 60 + int(rest)
        if total <= MINUTES_PER_DAY:
            return total
    raise OptionError(f"must be a time from 00:00 to 24:00, such as 08:30, not {text!r}")


def parse_days(text: str) -> tuple[int, ...]:
    """`mon-fri`, `sat,sun`, `fri-mon,wed` → 0 for Monday …; an empty text: every day."""
    if not text.strip():
        return tuple(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = (piece.strip().lower() for piece in part.partition("-"))
        begin = _day(first, text)
        length = (_day(last, text) - begin) % 7 if dash else 0
        found.update((begin + i) % 7 for i in range(length + 1))
    return tuple(sorted(found))


def _day(name: str, text: str) -> int:
    if name not in DAY_NAMES:
        raise OptionError(f"must be of {', '.join(DAY_NAMES)}, such as mon-fri or sat,sun, not {text!r}")
    return DAY_NAMES.index(name)


def _is_number(text: str, least: int, most: int) -> bool:
    return least <= len(text) <= most and text.isascii() and text.isdigit()
