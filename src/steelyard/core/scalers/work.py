"""Steelyard's own scaler: as many replicas as the arriving work needs, and some to spare.

Formula: square-root staffing. With work w (seconds per second) and replicas that do r of it,
n = (b + headroom × √b) / s, where s = max(1, r) servers a replica and b = w × s / r of them busy;
more while a backlog must be done in time.

Source: Erlang 1924; Halfin and Whitt 1981. Limits: until seconds are estimated it counts requests (Little's law).
Parts: arrival_rate.py, service_rate.py, headroom.py.
"""

from __future__ import annotations

from math import sqrt
from typing import ClassVar

from ..request import INFINITY
from ..statistics.sliding_windows import SlidingAverage, SlidingMaximum
from .arrival_rate import LOW_TRAFFIC_REQUESTS, ArrivalRate, Rates
from .base import Recommendation, Scaler, ScalingMetrics, boolean, number, tolerant_ceil
from .headroom import Headroom
from .service_rate import ServiceRate

MIN_BACKLOG_SECONDS, MAX_BACKLOG_SECONDS = 0.5, 5.0  # within which a backlog should be worked off
SLO_BACKLOG_SHARE = 0.5  # of the SLO, or of what is left of it after the start
SERVICE_RATE_WINDOWS = 5.0  # long windows over which the service rate is measured
CROWD_REQUESTS = 4  # queued beyond all slots: no chance
SINGLE_REPLICA_UTILIZATION = 0.5  # below which one replica is enough
PANIC_FACTOR = 2.0  # replicas needed / there are


class WorkScaler(Scaler):
    """With work A and A + β·√A servers, as many requests wait at any size: β 1 → 22 %, 1.5 → 8.5 %, 2 → 2.7 %."""

    renamed_options: ClassVar[dict[str, str]] = {
        "spare": "headroom",
        "least_spare": "min_headroom",
        "most_spare": "max_headroom",
        "down_after": "stabilization_window",
        "down_starts": "stabilization_cold_starts",
    }

    rule = "offered load (60 s, 6 s, forecast) + 1.5 × its root, backlog, SLO; highest of 60 s on the way down"

    def __init__(
        self,
        *,
        headroom: float = 1.5,
        min_headroom: float = 0.5,
        max_headroom: float = 4.0,
        window: float = 60.0,
        panic_window: float = 6.0,
        stabilization_window: float = 60.0,
        stabilization_cold_starts: float = 1.25,
        forecast: bool = True,
    ) -> None:
        self.window = number("window", window, least=6.0, most=3600.0)
        self.panic_window = number("panic_window", panic_window, least=1.0, most=self.window / 2)
        self.stabilization_window = number("stabilization_window", stabilization_window, least=0.0, most=86400.0)
        self.stabilization_cold_starts = number(
            "stabilization_cold_starts", stabilization_cold_starts, least=0.0, most=100.0
        )
        usual = number("headroom", headroom, least=0.0, most=10.0)
        least = min(usual, number("min_headroom", min_headroom, least=0.0, most=10.0))
        most = max(usual, number("max_headroom", max_headroom, least=0.0, most=10.0))
        self.forecast = boolean("forecast", forecast)
        self._arrival_rate = ArrivalRate(self.panic_window, self.window)
        self.headroom = Headroom(usual, least, most, self.panic_window, self.window)
        self._service_rate = ServiceRate(SERVICE_RATE_WINDOWS * self.window)
        self._rate = 1.0  # work that a replica does in a second, when full
        self._requests = SlidingAverage(self.panic_window)
        self._at_once = SlidingMaximum(self.window)
        self._needed = SlidingMaximum(self.stabilization_window)
        self._shortest = SlidingMaximum(self.panic_window)  # queue in the short window, with the sign turned
        self._standing = False  # was there one all the time?
        self._panicked = -INFINITY  # when twice as many were needed
        self._most = 0  # said last, or at the most in this panic
        self._peak = 0.0  # requests at once, in the long window
        self._begun = self._learned = False

    def recommend(self, seen: ScalingMetrics) -> Recommendation:
        self._take_in(seen)
        rates = self._arrival_rate.rates(seen.cold_start if self.forecast else None, self._max_wait(seen))
        work = max(rates.steady, rates.after_rise, rates.forecast)
        base = self._for_work(seen, work, few=rates.requests <= LOW_TRAFFIC_REQUESTS)
        self.headroom.observe(seen, tight=seen.ready + seen.starting <= base)
        behind = self._for_backlog(seen, rates)
        need = max(base, behind, 1 if seen.running + seen.waiting else 0)
        panicking = self._panicking(seen, rates, need)
        held = int(self._needed.add(seen.now, need))
        self._most = held = max(held, self._most) if panicking else held
        reason = self._words(seen, rates, work, panicking)
        if behind > base:
            reason += f", {_format_work(seen.backlog)} s of work waiting"
        if held > need:
            reason += (
                f", {held} needed {'in this panic' if panicking else f'within the last {self._needed.seconds:.0f} s'}"
            )
        return Recommendation(held, reason, rates.steady, rates.recent, work, self.headroom.burn, panicking)

    def _take_in(self, seen: ScalingMetrics) -> None:
        if seen.estimates_learned and not self._learned:  # before, work was a guess
            self._arrival_rate = ArrivalRate(self.panic_window, self.window)
            self._service_rate = ServiceRate(SERVICE_RATE_WINDOWS * self.window)
        self._learned = seen.estimates_learned
        self._arrival_rate.add(seen)
        self._service_rate.add(seen)
        self._rate = self._service_rate.rate(seen)
        requests = seen.running + seen.waiting
        self._requests.add(seen.now, requests)
        self._peak = self._at_once.add(seen.now, requests)
        self._standing = self._shortest.add(seen.now, -seen.waiting) < 0.0
        # The longer a start takes, the longer surplus replicas stay.
        self._needed.seconds = max(self.stabilization_window, self.stabilization_cold_starts * seen.cold_start)
        if not self._begun:  # nothing speaks for fewer yet
            self._begun = True
            self._needed.add(seen.now, seen.ready + seen.starting)

    def _for_work(self, seen: ScalingMetrics, work: float, *, few: bool) -> int:
        width = self._width(seen)
        if not seen.estimates_learned and not seen.ready:  # the first shows how long they take
            return 1 if self._peak else 0
        if not seen.estimates_learned:  # Little's law: requests at once are seconds of work per second
            at_once = self._requests.over(self.panic_window)[0]
            return min(
                tolerant_ceil(square_root_staffing(at_once, width, self.headroom.current)),
                tolerant_ceil(self._peak / width),
            )
        need = tolerant_ceil(square_root_staffing(work, self._rate, self.headroom.current))
        if work < SINGLE_REPLICA_UTILIZATION * self._rate and self.headroom.current <= self.headroom.configured:
            need = min(need, 1)  # the root of little is much
        if few:  # no more than one for each
            return min(need, tolerant_ceil(self._peak / width))
        if seen.busy_seconds > 0.0:  # Little's law, whatever was estimated
            need = min(need, tolerant_ceil(square_root_staffing(self._peak, width, self.headroom.current)))
        return need

    def _for_backlog(self, seen: ScalingMetrics, rates: Rates) -> int:
        """Enough to do what waits and what comes meanwhile within `_max_wait` after they are ready."""
        if not seen.waiting or not seen.estimates_learned:
            return 0
        work = max(rates.steady, rates.after_rise)
        if self._standing:
            work = max(work, rates.recent)
        if seen.waiting > seen.ready * self._width(seen) + CROWD_REQUESTS:  # what came just now tells enough
            work = max(work, rates.latest)
        max_wait = self._max_wait(seen)
        rate, horizon = self._rate, seen.cold_start + max_wait
        left = (seen.backlog + work * horizon) / rate - seen.ready * horizon  # seconds of one replica
        if left <= 0:
            return 0
        sooner = horizon - seen.cold_start / 2.0  # of those that are coming, about half of the start is over
        more = left / sooner
        if more > seen.starting:
            more = seen.starting + (left - seen.starting * sooner) / max_wait
        return seen.ready + min(tolerant_ceil(more), tolerant_ceil(seen.waiting / self._width(seen)))

    def _max_wait(self, seen: ScalingMetrics) -> float:
        """Seconds within which replicas that are started now should do what waits."""
        if seen.slo_seconds == INFINITY:
            return MAX_BACKLOG_SECONDS
        left = seen.slo_seconds - seen.cold_start - self._service_rate.seconds
        return max(
            min(MAX_BACKLOG_SECONDS, max(MIN_BACKLOG_SECONDS, SLO_BACKLOG_SHARE * seen.slo_seconds)),
            SLO_BACKLOG_SHARE * left,
        )

    def _width(self, seen: ScalingMetrics) -> float:
        if seen.slots_configured and 1.0 <= seen.slots < INFINITY:
            return seen.slots
        return max(1.0, min(self._rate, seen.slots))

    def _panicking(self, seen: ScalingMetrics, rates: Rates, need: int) -> bool:
        """Twice as many are needed as there are: no fewer until the long window shows it."""
        sudden = rates.after_rise > 0.0 or seen.waiting > 0
        if sudden and need >= PANIC_FACTOR * max(1, seen.ready):
            self._panicked = seen.now
        return seen.now - self._panicked < self.window

    def _words(self, seen: ScalingMetrics, rates: Rates, work: float, panicking: bool) -> str:
        parts = [f"{_format_work(rates.steady)} s/s of work offered"]
        if not seen.estimates_learned:
            parts = [_unlearned(seen)]
        elif rates.after_rise > rates.steady:
            parts.append(f"{_format_work(rates.after_rise)} lately")
        if seen.estimates_learned and work > max(rates.steady, rates.after_rise):
            parts.append(f"forecast {_format_work(work)} in {seen.cold_start:.0f} s")
        if self.headroom.more_replicas_would_not_help:
            parts.append("late requests though nothing waits: more replicas would not help")
        elif self.headroom.current > self.headroom.configured:
            parts.append(f"more to spare ({self.headroom.current:g}) because too many were late")
        return ", ".join([*parts, "panicking"] if panicking else parts)


def square_root_staffing(work: float, rate: float, spare: float) -> float:
    """Replicas, not rounded. One is as many servers as it does seconds of work per second, or one slow server."""
    servers = max(1.0, rate)
    busy = work * servers / rate
    return (busy + spare * sqrt(busy)) / servers


def _unlearned(seen: ScalingMetrics) -> str:
    requests = seen.running + seen.waiting
    if seen.waiting and not seen.ready + seen.starting:
        return "a request waits" if requests == 1 else f"{requests} requests wait"
    if not requests:
        return "no request now, and not known yet how long one takes"
    return f"{requests} request{'' if requests == 1 else 's'} at once, and not known yet how long they take"


def _format_work(value: float) -> str:
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
