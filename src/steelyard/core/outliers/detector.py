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

from collections.abc import Sequence
from math import exp, log
from statistics import fmean, median_low, pstdev

from ..options import OutlierDetectionOptions
from ..outcome import Outcome
from ..replica import Replica
from ..request import INFINITY
from .ejection_reason import EjectionReason, EjectionRule

SUCCESS_RATE_INTERVAL_SECONDS = 10.0
EXTREME_SLOWNESS_FACTOR = 10.0  # × slow_factor: then a replica is of no use, usual or not

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
        found = self._crawling(members, now)
        if now >= self._next_rates:
            self._next_rates = now + SUCCESS_RATE_INTERVAL_SECONDS
            crawling = [r for r, _ in found]
            found += [(r, reason) for r, reason in self._failing(members) if r not in crawling]
        room = max(1, int(self.options.max_ejected_share * (len(members) + out_already))) - out_already
        return found[: max(0, room)]

    def ejection_seconds(self, replica: Replica) -> float:
        replica.ejection_backoff += 1
        return min(self.options.max_ejection_time, self.options.base_ejection_time * replica.ejection_backoff)

    def _failing(self, members: Sequence[Replica]) -> list[Outlier]:
        options = self.options
        judged = [r for r in members if r.successes + r.failures >= options.min_requests]
        if len(judged) < options.min_replicas:
            return []
        rates = {r: r.successes / (r.successes + r.failures) for r in judged}
        mean = fmean(rates.values())
        limit = mean - max(options.min_rate_gap, options.stdev_factor * pstdev(rates.values()))
        for r in judged:
            r.successes = r.failures = 0
        worst = sorted((r for r in judged if rates[r] < limit), key=lambda r: rates[r])
        rule, seconds = EjectionRule.SUCCESS_RATE, SUCCESS_RATE_INTERVAL_SECONDS
        return [(r, EjectionReason(rule, rates[r], mean, seconds, r.last_failure)) for r in worst]

    def _crawling(self, members: Sequence[Replica], now: float) -> list[Outlier]:
        """Slow against its own usual speed for long, while the others are not; or slow beyond any use.

        The median excess, common to all (heavier requests, a shared disk), is taken off. What a replica that is hardly
        used showed long ago does not count.
        """
        options = self.options
        slow = log(options.slow_factor)
        excesses = [r.slowness_filter.excess for r in members]
        common = median_low(excesses)
        typical = median_low([r.slowness * r.weight for r in members])
        useless = EXTREME_SLOWNESS_FACTOR * options.slow_factor * typical
        found: list[Outlier] = []
        for r, excess in zip(members, excesses, strict=True):
            slowed = excess - common > slow + r.slowness_filter.margin
            crawls = slowed or r.slowness * r.weight > useless
            if not crawls or now - r.slowness_filter.updated_at > options.slow_duration:
                r.slow_since = INFINITY
            elif r.slow_since == INFINITY:
                r.slow_since = now
            elif now - r.slow_since >= options.slow_duration:
                if slowed:
                    rule, times = EjectionRule.SLOWED, exp(excess - common)
                else:
                    rule, times = EjectionRule.EXTREME_SLOWNESS, r.slowness * r.weight / typical
                found.append((r, EjectionReason(rule, times, 1.0, now - r.slow_since)))
        return found


def consecutive_reason(replica: Replica, rule: EjectionRule) -> EjectionReason:
    count = replica.consecutive_failures
    alike = replica.same_failures >= count
    return EjectionReason(rule, count, last_failure=replica.last_failure, all_same=alike)
