"""How a promise was kept over the last minutes, hours and days: sums over sliding windows, and what follows from them.

Pure: times are arguments. A window is made of slots, and what falls out of it falls out a slot at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from .slo import AVAILABLE, CLIENT, JUDGEMENTS, LATE, LATENCY, LEFT, MET, Counts, Promise

MINUTE: Final = 60.0
HOUR: Final = 3600.0
SLOT: Final = 10.0  # seconds
SPARE: Final = 64  # slots beyond those of the longest window, before they are cleared out
FINEST: Final = 720  # slots of a period: an hour each, if it has 30 days
WINDOWS: Final = (5 * MINUTE, 30 * MINUTE, HOUR, 6 * HOUR)
LONGEST: Final = 6 * HOUR
PAGE: Final = "page"
TICKET: Final = "ticket"
# Google's SRE workbook, "Alerting on SLOs": one window long enough to matter, one short enough to tell that it goes on
PAIRS: Final = ((PAGE, 5 * MINUTE, HOUR, 14.4), (TICKET, 30 * MINUTE, 6 * HOUR, 6.0))
LEAST: Final = 20  # requests in the longer window: of three that came at night, one that failed wakes nobody
LEAST_BAD: Final = 5  # of these
STRICTEST: Final = 1e-6  # share that may go wrong at least, however much is promised: nobody divides by zero


class Weighed(NamedTuple):
    """Requests that count for promises: none whose client is at fault."""

    met: int = 0
    late: int = 0
    lost: int = 0  # failed or refused

    def plus(self, other: Weighed) -> Weighed:
        return Weighed(self.met + other.met, self.late + other.late, self.lost + other.lost)

    def less(self, other: Weighed) -> Weighed:
        return Weighed(self.met - other.met, self.late - other.late, self.lost - other.lost)


NOTHING: Final = Weighed()
_IS_LATE: Final = [i for i, (verdict, fault) in enumerate(JUDGEMENTS) if verdict == LATE and fault != CLIENT]
_IS_LOST: Final = [
    i for i, (verdict, fault) in enumerate(JUDGEMENTS) if verdict not in (MET, LATE, LEFT) and fault != CLIENT
]


def weigh(counts: Counts) -> Weighed:
    return Weighed(counts[0], sum([counts[i] for i in _IS_LATE]), sum([counts[i] for i in _IS_LOST]))


class Windows:
    """Sums over the last seconds, up to `longest`. Only slots in which something came take up room."""

    def __init__(self, longest: float = LONGEST, slot: float = SLOT) -> None:
        self.longest = longest
        self._slot = slot
        self._slots: list[int] = []
        self._before: list[Weighed] = []  # all that came before each slot
        self._total = NOTHING

    def add(self, came: Weighed, when: float) -> None:
        """Cheap for the latest; what is older may come later, too."""
        slots, before = self._slots, self._before
        slot = int(when // self._slot)
        at = bisect_left(slots, slot)
        if at == len(slots) or slots[at] != slot:
            slots.insert(at, slot)
            before.insert(at, before[at] if at < len(before) else self._total)
        for later in range(at + 1, len(before)):
            before[later] = before[later].plus(came)
        self._total = self._total.plus(came)
        if len(slots) > self._most + SPARE:
            old = bisect_left(slots, slots[-1] - self._most)
            del slots[:old], before[:old]

    def sums(self, seconds: float, now: float) -> Weighed:
        """Of the last so many seconds, the slot that has just begun being one of them."""
        first = int(now // self._slot) - max(1, round(seconds / self._slot)) + 1
        at = bisect_left(self._slots, first)
        return self._total.less(self._before[at]) if at < len(self._before) else NOTHING

    def entries(self) -> Iterator[tuple[Weighed, float]]:
        """All that is known, and when it came."""
        after = [*self._before[1:], self._total]
        for slot, before, next_one in zip(self._slots, self._before, after, strict=True):
            yield next_one.less(before), slot * self._slot

    @property
    def _most(self) -> int:
        return round(self.longest / self._slot) + 1


def over_period(period: float) -> Windows:
    """Windows for an error budget; a slot is an hour, or more if the period has more than 30 days."""
    return Windows(period, SLOT if period <= LONGEST else max(HOUR, period / FINEST))


class Objective(NamedTuple):
    """One thing that is promised: of so many percent of requests."""

    kind: str  # LATENCY or AVAILABLE
    target: float

    def parts(self, weighed: Weighed) -> tuple[int, int]:
        """Good and bad."""
        if self.kind == LATENCY:
            return weighed.met, weighed.late + weighed.lost
        return weighed.met + weighed.late, weighed.lost

    def burn(self, weighed: Weighed) -> float:
        """How many times as much goes wrong as may; 0.0 where nothing came."""
        good, bad = self.parts(weighed)
        allowed = max(1.0 - self.target / 100.0, STRICTEST)
        return bad / (good + bad) / allowed if bad else 0.0

    def budget_left(self, weighed: Weighed) -> float:
        """Share of what may go wrong that has not; negative: more did."""
        return 1.0 - self.burn(weighed)

    def alert(self, windows: Windows, now: float) -> str:
        """PAGE, TICKET or nothing."""
        for what, short, long, burn in PAIRS:
            lately = windows.sums(long, now)
            good, bad = self.parts(lately)
            if good + bad < LEAST or bad < LEAST_BAD or self.burn(lately) <= burn:
                continue
            if self.burn(windows.sums(short, now)) > burn:
                return what
        return ""


def percent_kept(good: int, bad: int) -> float | None:
    """Percent."""
    return 100.0 * good / (good + bad) if good + bad else None


def objectives(promise: Promise) -> list[Objective]:
    found = []
    if promise.timed:
        found.append(Objective(LATENCY, promise.percentile))
    if promise.availability:
        found.append(Objective(AVAILABLE, promise.availability))
    return found
