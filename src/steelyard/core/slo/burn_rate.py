"""How an SLO was kept over minutes, hours and days: sums over sliding windows of buckets, burn rates and alerts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from .verdicts import ABANDONED, AVAILABILITY, CLIENT, LATE, LATENCY, MET, SLO_VERDICTS, SloTarget, VerdictCounts

MINUTE_SECONDS: Final = 60.0
HOUR_SECONDS: Final = 3600.0
BUCKET_SECONDS: Final = 10.0
PRUNE_SLACK_BUCKETS: Final = 64  # beyond the longest window, before they are cleared out
MAX_PERIOD_BUCKETS: Final = 720  # an hour each in 30 days
ALERT_WINDOWS_SECONDS: Final = (5 * MINUTE_SECONDS, 30 * MINUTE_SECONDS, HOUR_SECONDS, 6 * HOUR_SECONDS)
LONGEST_WINDOW_SECONDS: Final = 6 * HOUR_SECONDS
PAGE: Final = "page"
TICKET: Final = "ticket"
# Google's SRE workbook, "Alerting on SLOs": a long window that matters, a short one that tells whether it goes on
BURN_RATE_ALERTS: Final = (
    (PAGE, 5 * MINUTE_SECONDS, HOUR_SECONDS, 14.4),
    (TICKET, 30 * MINUTE_SECONDS, 6 * HOUR_SECONDS, 6.0),
)
MIN_REQUESTS: Final = 20  # in the longer window: one failure of three at night raises no alarm
MIN_BAD_REQUESTS: Final = 5
MIN_ERROR_BUDGET: Final = 1e-6  # no division by zero


class SloCounts(NamedTuple):
    """Requests that count: none whose client is at fault."""

    met: int = 0
    late: int = 0
    lost: int = 0  # failed or refused

    def plus(self, other: SloCounts) -> SloCounts:
        return SloCounts(self.met + other.met, self.late + other.late, self.lost + other.lost)

    def less(self, other: SloCounts) -> SloCounts:
        return SloCounts(self.met - other.met, self.late - other.late, self.lost - other.lost)


NO_REQUESTS: Final = SloCounts()
_LATE_VERDICTS: Final = [i for i, (verdict, fault) in enumerate(SLO_VERDICTS) if verdict == LATE and fault != CLIENT]
_LOST_VERDICTS: Final = [
    i for i, (verdict, fault) in enumerate(SLO_VERDICTS) if verdict not in (MET, LATE, ABANDONED) and fault != CLIENT
]


def slo_counts(counts: VerdictCounts) -> SloCounts:
    return SloCounts(counts[0], sum([counts[i] for i in _LATE_VERDICTS]), sum([counts[i] for i in _LOST_VERDICTS]))


class SloWindows:
    def __init__(self, longest: float = LONGEST_WINDOW_SECONDS, bucket: float = BUCKET_SECONDS) -> None:
        self.longest = longest
        self._bucket = bucket
        self._buckets: list[int] = []
        self._before: list[SloCounts] = []  # all that came before each bucket
        self._total = NO_REQUESTS

    def add(self, came: SloCounts, when: float) -> None:
        """Older requests may come later, too."""
        buckets, before = self._buckets, self._before
        bucket = int(when // self._bucket)
        at = bisect_left(buckets, bucket)
        if at == len(buckets) or buckets[at] != bucket:
            buckets.insert(at, bucket)
            before.insert(at, before[at] if at < len(before) else self._total)
        for later in range(at + 1, len(before)):
            before[later] = before[later].plus(came)
        self._total = self._total.plus(came)
        if len(buckets) > self._most + PRUNE_SLACK_BUCKETS:
            old = bisect_left(buckets, buckets[-1] - self._most)
            del buckets[:old], before[:old]

    def sums(self, seconds: float, now: float) -> SloCounts:
        """Of the last seconds, the bucket that has just begun included."""
        first = int(now // self._bucket) - max(1, round(seconds / self._bucket)) + 1
        at = bisect_left(self._buckets, first)
        return self._total.less(self._before[at]) if at < len(self._before) else NO_REQUESTS

    def entries(self) -> Iterator[tuple[SloCounts, float]]:
        """All that is known, and when it came."""
        after = [*self._before[1:], self._total]
        for bucket, before, next_one in zip(self._buckets, self._before, after, strict=True):
            yield next_one.less(before), bucket * self._bucket

    @property
    def _most(self) -> int:
        return round(self.longest / self._bucket) + 1


def period_windows(period: float) -> SloWindows:
    long = period > LONGEST_WINDOW_SECONDS
    return SloWindows(period, max(HOUR_SECONDS, period / MAX_PERIOD_BUCKETS) if long else BUCKET_SECONDS)


class Objective(NamedTuple):
    kind: str  # LATENCY or AVAILABILITY
    target: float  # percent

    def good_and_bad(self, weighed: SloCounts) -> tuple[int, int]:
        if self.kind == LATENCY:
            return weighed.met, weighed.late + weighed.lost
        return weighed.met + weighed.late, weighed.lost

    def burn_rate(self, weighed: SloCounts) -> float:
        """Bad share / allowed share; 0.0 where nothing came."""
        good, bad = self.good_and_bad(weighed)
        allowed = max(1.0 - self.target / 100.0, MIN_ERROR_BUDGET)
        return bad / (good + bad) / allowed if bad else 0.0

    def budget_left(self, weighed: SloCounts) -> float:
        return 1.0 - self.burn_rate(weighed)

    def alert(self, windows: SloWindows, now: float) -> str:
        """PAGE, TICKET or nothing."""
        for what, short, long, burn in BURN_RATE_ALERTS:
            lately = windows.sums(long, now)
            good, bad = self.good_and_bad(lately)
            if good + bad < MIN_REQUESTS or bad < MIN_BAD_REQUESTS or self.burn_rate(lately) <= burn:
                continue
            if self.burn_rate(windows.sums(short, now)) > burn:
                return what
        return ""


def percent_met(good: int, bad: int) -> float | None:
    return 100.0 * good / (good + bad) if good + bad else None


def objectives(target: SloTarget) -> list[Objective]:
    found = []
    if target.timed:
        found.append(Objective(LATENCY, target.percentile))
    if target.availability:
        found.append(Objective(AVAILABILITY, target.availability))
    return found
