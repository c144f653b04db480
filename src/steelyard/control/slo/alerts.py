"""When promises break so fast that somebody should know: what burns, since when, and in words."""

from __future__ import annotations

from time import gmtime, strftime
from typing import Final, NamedTuple

from ...core.request import INFINITY
from ...core.slo import LATENCY, Promise
from ...core.slo_windows import HOUR, PAIRS, Objective, percent_kept
from ...units import show_duration, show_seconds
from ..alarm_codes import PAGE
from ..views import Alarm
from .ledger import Kept, Key

STEADY: Final = 60.0  # seconds that it must be over before it is: a promise on the brink is one alert, not fifty
EASED: Final = 300.0  # seconds that a page must burn less fast before it is a ticket: as long as its short window
_LONGER: Final = {what: long for what, _, long, _ in PAIRS}


class Burning(NamedTuple):
    level: str  # page or ticket
    since: float
    seen: float  # when it last burnt at all …
    worst: float  # … and at this level, or a worse one
    what: str  # in words, without the model's name


class Alerts:
    def __init__(self) -> None:
        self.burning: dict[tuple[Key, str], Burning] = {}

    def look(self, key: Key, objective: Objective, promise: Promise, kept: Kept, now: float, wall: float) -> None:
        """A ticket becomes a page at once. What gets better is believed only after a while. `wall`: the time of day."""
        level = objective.alert(kept.recent, now)
        place = (key, objective.kind)
        before = self.burning.get(place)
        if not level:
            if before is not None and now - before.seen >= STEADY:
                del self.burning[place]
            return
        worst = now
        if before is not None and before.level == PAGE != level and now - before.worst < EASED:
            level, worst = PAGE, before.worst
        what = _in_words(key, objective, promise, kept, level, now, wall)
        since = before.since if before is not None and before.level == level else now
        self.burning[place] = Burning(level, since, now, worst, what)

    def level(self, key: Key, kind: str) -> str:
        burning = self.burning.get((key, kind))
        return burning.level if burning is not None else ""

    def keep(self, places: set[tuple[Key, str]]) -> None:
        """Forget what is not promised any more."""
        self.burning = {place: burning for place, burning in self.burning.items() if place in places}

    def alarms(self, now: float) -> list[Alarm]:
        return [
            Alarm(
                code=f"slo_{burning.level}",
                what=f"{model}: {burning.what}",
                age=now - burning.since,
                model=model,
                about=f"{kind} {tenant}".strip(),
            )
            for ((model, tenant), kind), burning in self.burning.items()
        ]


def _in_words(key: Key, objective: Objective, promise: Promise, kept: Kept, level: str, now: float, wall: float) -> str:
    weighed = kept.recent.sums(_LONGER[level], now)
    percent = percent_kept(*objective.parts(weighed)) or 0.0
    how = _within(promise) if objective.kind == LATENCY else "answered"
    over = _over(kept.covered(_LONGER[level], now), level, wall)
    return (
        f"{percent:.4g} % {how} {over}{_for(key)}, {objective.target:.6g} % promised: "
        f"the error budget burns {objective.burn(weighed):.1f} × as fast as allowed ({level})"
    )


def _over(covered: float | None, level: str, wall: float) -> str:
    """Not more than was seen."""
    if covered is None:
        return f"over {_LONGER[level] / HOUR:.0f} h"
    return f"since {strftime('%H:%M', gmtime(wall - covered))} UTC ({show_duration(covered)})"


def _within(promise: Promise) -> str:
    parts = []
    if promise.latency < INFINITY:
        parts.append(f"within {show_seconds(promise.latency)}")
    if promise.first_byte < INFINITY:
        parts.append(f"first byte within {show_seconds(promise.first_byte)}")
    return ", ".join(parts)


def _for(key: Key) -> str:
    return f" for {key[1]}" if key[1] else ""
