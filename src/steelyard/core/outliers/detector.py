"""Outlier detection: replicas that fail or crawl with real requests though they answer probes.

Idea: failures in a row eject at once. Success rates are compared with the other replicas', speed with the replica's own
usual speed: the policy allows for hardware that has always been slower.

Formula: success rate < mean − max(min_rate_gap, stdev_factor × σ) over SUCCESS_RATE_INTERVAL_SECONDS;
ln(slowness / own usual) − median of all > ln(slow_factor) + two standard deviations for `slow_duration` seconds; or
slowness per weight > EXTREME_SLOWNESS_FACTOR × slow_factor × the median.

Source: Envoy's outlier detection, adapted to low rates; docs/decisions/0023-suspicion-and-recovery.md. Limits: the two
that compare eject at most `max_ejected_share` of the replicas, but at least one; with one replica they do nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Sequence
from math import exp, log
from typing import TYPE_CHECKING, Final

from ..estimator.slowness import SlownessFilter
from ..options import OutlierDetectionOptions
from ..outcome import Outcome
from ..replica import Replica, State
from ..request import INFINITY
from ..statistics.medians import lower_median, mean_and_stdev
from .ejection_reason import EjectionReason, EjectionRule

if TYPE_CHECKING:
    from ..review import Review

SUCCESS_RATE_INTERVAL_SECONDS = 10.0
CHUNK = 128  # replicas of a large pool looked at in one step of a review
EXTREME_SLOWNESS_FACTOR = 10.0  # × slow_factor: then a replica is of no use, usual or not

READY: Final = State.READY  # bound once: a lookup through the enumeration is slow, compiled or not

Outlier = tuple[Replica, EjectionReason]


class OutlierDetector:
    def __init__(self, options: OutlierDetectionOptions) -> None:
        self.options = options
        self._next_rates = 0.0

    def record(self, replica: Replica, outcome: Outcome, words: str = "") -> EjectionReason | None:
        """`words`: of a failure. A reason: it failed too often in a row."""
        if outcome.failed:
            replica.failures += 1
            replica.consecutive_failures += 1
            replica.same_failures = replica.same_failures + 1 if words == replica.last_failure else 1
            replica.last_failure = words
            if self.options.enabled and replica.consecutive_failures >= self.options.consecutive_failures:
                return consecutive_reason(replica, EjectionRule.CONSECUTIVE_FAILURES)
        elif outcome.informative:
            replica.successes += 1
            replica.consecutive_failures = 0
        return None

    def outliers(self, members: Sequence[Replica], out_already: int, now: float) -> list[Outlier]:
        """By success rate and speed, as many as may be ejected."""
        if not self.options.enabled or len(members) < 2:
            return []
        seen = self._begin(now)
        seen.add(members)
        seen.sum_up()
        seen.judge(members, now)
        return self._as_allowed(seen, out_already)

    def review(self, review: Review, out_already: int) -> Generator[None, None, list[Outlier]]:
        """As `outliers`, of all that are ready."""
        if not self.options.enabled:
            return []
        seen = self._begin(review.now)
        for chunk in review.members(CHUNK):
            seen.add([r for r in chunk if r.state is READY])
            yield
        if seen.count < 2:
            return []
        seen.sum_up()
        yield
        for chunk in review.members(CHUNK):
            seen.judge([r for r in chunk if r.state is READY], review.now)
            yield
        return self._as_allowed(seen, out_already)

    def _begin(self, now: float) -> FleetStatistics:
        seen = FleetStatistics(self.options, now >= self._next_rates)
        if seen.compares_rates:
            self._next_rates = now + SUCCESS_RATE_INTERVAL_SECONDS
        return seen

    def _as_allowed(self, seen: FleetStatistics, out_already: int) -> list[Outlier]:
        found = seen.crawling
        crawling = [r for r, _ in found]
        found += [(r, reason) for r, reason in seen.failing() if r not in crawling]
        room = max(1, int(self.options.max_ejected_share * (seen.count + out_already))) - out_already
        return found[: max(0, room)]

    def ejection_seconds(self, replica: Replica) -> float:
        replica.ejection_backoff += 1
        return min(self.options.max_ejection_time, self.options.base_ejection_time * replica.ejection_backoff)


class FleetStatistics:
    """Of one review: `add` all, `sum_up`, then `judge` all.

    A replica crawls if it is slow against its own usual speed for long, while the others are not; or beyond any use.
    The median excess, common to all (heavier requests, a shared disk), is taken off. What a replica that is hardly used
    showed long ago does not count.
    """

    def __init__(self, options: OutlierDetectionOptions, compares_rates: bool) -> None:
        self._options = options
        self.compares_rates = compares_rates
        self.crawling: list[Outlier] = []
        self._failing: list[tuple[float, Replica]] = []
        self._excesses, self._speeds, self._rates = array("d"), array("d"), array("d")
        self._common = self._typical = self._mean = 0.0
        self._least_rate = -INFINITY

    @property
    def count(self) -> int:
        return len(self._excesses)

    def add(self, members: Sequence[Replica]) -> None:
        for replica in members:
            self._excesses.append(replica.slowness_filter.excess)
            self._speeds.append(replica.slowness * replica.weight)
            requests = replica.successes + replica.failures
            if self.compares_rates and requests >= self._options.min_requests:
                self._rates.append(replica.successes / requests)

    def sum_up(self) -> None:
        options, rates = self._options, self._rates
        self._common, self._typical = lower_median(self._excesses), lower_median(self._speeds)
        self.compares_rates = self.compares_rates and len(rates) >= options.min_replicas
        if self.compares_rates:
            self._mean, spread = mean_and_stdev(rates)
            self._least_rate = self._mean - max(options.min_rate_gap, options.stdev_factor * spread)

    def judge(self, members: Sequence[Replica], now: float) -> None:
        slow = log(self._options.slow_factor)
        useless = EXTREME_SLOWNESS_FACTOR * self._options.slow_factor * self._typical
        for replica in members:
            if self.compares_rates:
                self._judge_rate(replica)
            speed: SlownessFilter = replica.slowness_filter
            excess = speed.excess - self._common
            slowed = excess > slow and excess > slow + speed.margin
            if (slowed or replica.slowness * replica.weight > useless) and not (
                now - speed.updated_at > self._options.slow_duration
            ):
                self._note_crawling(replica, excess if slowed else 0.0, now)
            else:
                replica.slow_since = INFINITY

    def _judge_rate(self, replica: Replica) -> None:
        requests = replica.successes + replica.failures
        if requests >= self._options.min_requests:
            rate = replica.successes / requests
            if rate < self._least_rate:
                self._failing.append((rate, replica))
            replica.successes = replica.failures = 0

    def _note_crawling(self, replica: Replica, excess: float, now: float) -> None:
        """`excess`: over its own usual; 0.0: it is slow beyond any use."""
        if replica.slow_since == INFINITY:
            replica.slow_since = now
        elif now - replica.slow_since >= self._options.slow_duration:
            if excess:
                rule, times = EjectionRule.SLOWED, exp(excess)
            else:
                rule, times = EjectionRule.EXTREME_SLOWNESS, replica.slowness * replica.weight / self._typical
            self.crawling.append((replica, EjectionReason(rule, times, 1.0, now - replica.slow_since)))

    def failing(self) -> list[Outlier]:
        """The worst first."""
        rule, seconds = EjectionRule.SUCCESS_RATE, SUCCESS_RATE_INTERVAL_SECONDS
        return [
            (r, EjectionReason(rule, rate, self._mean, seconds, r.last_failure))
            for rate, r in sorted(self._failing, key=lambda each: each[0])
        ]


def consecutive_reason(replica: Replica, rule: EjectionRule) -> EjectionReason:
    count = replica.consecutive_failures
    alike = replica.same_failures >= count
    return EjectionReason(rule, count, last_failure=replica.last_failure, all_same=alike)
