"""The rate of arriving work, in seconds per second: steady, recent, and forecast, each told apart from chance.

Idea: the long window is widened while longer ones agree with it. A rise counts when the short window exceeds the rate
before by RISE_STDEVS standard deviations, in both halves: what came all at once is a backlog, not a rate. A trend
counts when each of four quarters rises above the last by more than chance.

Formula: forecast = latest quarter + slope × (quarter / 2 + window × (1 − e^(−ahead / window))), at most
MAX_FORECAST_FACTOR × now. Variance is of differences of neighbouring samples: a change of level hardly disturbs it.

Source: von Neumann 1941 (successive differences); Gardner and McKenzie 1985 (damped trend). Limits: with fewer than
PRIOR_REQUESTS requests the variance is mostly a guess.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp, sqrt
from typing import NamedTuple

from ..statistics.sliding_windows import SlidingTotals
from .base import ScalingMetrics

RISE_STDEVS = 3.5
RISE_WINDOW_SHARES = (1.0, 1 / 3)  # of the short window: a large rise shows in two seconds
STEADY_STDEVS = 2.0  # within which a longer window agrees with the long one
STEADY_WINDOW_MULTIPLES = (2, 4, 8)
LOW_TRAFFIC_REQUESTS = 30  # in the long window: they say little of what will come
TREND_QUARTERS = 4
HISTORY_WINDOWS = 10.0  # long windows remembered, for trends
PRIOR_REQUESTS = 10.0  # weight of PRIOR_DISPERSION
PRIOR_DISPERSION = 2.0  # variance over that of equal requests at random; 2 is exponential
MAX_FORECAST_FACTOR = 2.0


class Rates(NamedTuple):
    """Seconds of work per second."""

    steady: float  # over the long window
    recent: float  # over the short one
    after_rise: float  # since it rose beyond chance; 0.0: it did not
    latest: float  # over the shortest time in which a rise may show
    forecast: float  # 0.0: there is no trend
    requests: float  # in the long window


class ArrivalRate:
    def __init__(self, short: float, long: float) -> None:
        self.short, self.long = short, long
        self._recent = SlidingTotals(long)
        self._history = SlidingTotals(HISTORY_WINDOWS * long)
        self._work = self._requests = self._noise = 0.0
        self._last: tuple[float, float, int] | None = None  # time, work, requests
        self._step = (0.0, 0.0)  # rate and seconds of the step before

    def add(self, seen: ScalingMetrics) -> None:
        """A count that went back began anew: what came meanwhile counts as nothing."""
        if self._last is not None:
            when, offered, arrived = self._last
            seconds = seen.now - when
            if seconds <= 0.0:
                return  # with the next look
            work = max(0.0, seen.offered - offered)
            self._work += work
            self._requests += max(0, seen.arrived - arrived)
            rate, (before, lasted) = work / seconds, self._step
            if lasted > 0.0:  # variance from differences of neighbours
                self._noise += seconds * (rate - before) ** 2 / (1.0 / seconds + 1.0 / lasted)
            self._step = (rate, seconds)
        self._last = (seen.now, seen.offered, seen.arrived)
        for totals in (self._recent, self._history):
            totals.add(seen.now, self._work, self._requests, self._noise)

    def rates(self, ahead: float | None, max_wait: float = 0.0) -> Rates:
        """`ahead`: seconds of the forecast; None: without one. `max_wait`: how long work may wait."""
        span, (work, requests, noise) = self._recent.over(self.long)
        lately = self._recent.over(self.short)[1][0] / self.short
        variance = _variance(work, requests, noise, span)
        steady = self._steady(span, work, requests, variance)
        shortest = min(max_wait / 4.0, self.long / 4.0)
        risen = self._risen(variance, shortest)
        newest = self._newest(max(min(RISE_WINDOW_SHARES) * self.short, shortest))
        forecast = self._forecast(max(steady, risen), variance, ahead) if ahead is not None else 0.0
        return Rates(steady, lately, risen, newest, forecast, requests)

    def _steady(self, span: float, work: float, requests: float, variance: float) -> float:
        """Over the longest time that agrees with the long window."""
        if requests <= 0:
            return 0.0
        share = 1.0 if requests <= LOW_TRAFFIC_REQUESTS else min(RISE_WINDOW_SHARES) / 2.0
        known = max(span, self.short * share)
        # The first request only says that there is traffic.
        rate = found = work / known * max(0.0, 1.0 - 1.0 / requests)
        for times in STEADY_WINDOW_MULTIPLES:
            span, (work, _, _) = self._history.over(times * self.long)
            if span < 0.99 * times * self.long or abs(work / span - rate) > STEADY_STDEVS * sqrt(variance / self.long):
                break
            found = work / span
        return found

    def _risen(self, variance: float, shortest: float) -> float:
        """The highest recent rate that chance does not explain, over at least `shortest` seconds."""
        found = 0.0
        known, (earlier, count, _) = self._recent.over(self.long, ago=max(self.short, shortest))
        if known < self.short:
            return found
        before = earlier / known
        for part in RISE_WINDOW_SHARES:
            seconds = max(part * self.short, shortest)
            span, (work, requests, _) = self._recent.over(seconds)
            if span < 0.99 * seconds or requests <= 0:
                continue
            expected = count / known * seconds
            mean = max(work / requests, earlier / count if count > 0 else 0.0)
            # Noise by the number of requests, or as measured if that is more.
            spread = mean * sqrt(PRIOR_DISPERSION * (expected + requests) / 2.0)
            spread = max(spread, sqrt(variance * seconds)) if expected > 0 else spread
            if work - before * seconds > RISE_STDEVS * spread:
                half = self._recent.over(seconds / 2.0)[1][0]
                found = max(found, 2.0 * min(half, work - half) / seconds)
        return found if found > before else 0.0

    def _newest(self, seconds: float) -> float:
        span, (work, _, _) = self._recent.over(seconds)
        return work / span if span >= 0.99 * seconds else 0.0

    def _forecast(self, level: float, variance: float, ahead: float) -> float:
        window = min(max(self.long, TREND_QUARTERS * ahead), HISTORY_WINDOWS * self.long)
        quarter = window / TREND_QUARTERS
        parts = [self._history.over(quarter, ago=i * quarter) for i in range(TREND_QUARTERS)]
        if any(span < 0.99 * quarter for span, _ in parts):
            return 0.0
        rates = [growth[0] / span for span, growth in reversed(parts)]
        slope = min(b - a for a, b in pairwise(rates)) / quarter
        if slope * quarter <= sqrt(2.0 * variance / quarter):
            return 0.0
        horizon = quarter / 2.0 + window * (1.0 - exp(-ahead / window))
        return min(max(level, rates[-1] + slope * horizon), MAX_FORECAST_FACTOR * max(level, rates[-1]))


def _variance(work: float, requests: float, noise: float, span: float) -> float:
    """Of the work that comes in a second."""
    if requests <= 0 or span <= 0:
        return 0.0
    guess = PRIOR_DISPERSION * work / span * work / requests
    return (PRIOR_REQUESTS * guess + noise / span * requests) / (PRIOR_REQUESTS + requests)
