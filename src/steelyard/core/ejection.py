"""Outlier detection: which replicas fail or crawl with real requests though they answer probes.

Rules from Envoy, adapted to low rates. Failures in a row eject at once. Success rates are compared with the other
replicas'. Speed is compared with the replica's own usual speed: hardware that has always been slower is no outlier, the
policy weighs its requests by that (docs/decisions/0023-suspicion-and-recovery.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import fmean, median_low, pstdev

from .ejection_reason import EjectionReason, Rule
from .options import EjectionOptions
from .outcome import Outcome
from .replica import Replica
from .request import INFINITY

SWEEP = 10.0  # seconds between looks at success rates
BEYOND_USE = 10.0  # times `slow`: slower than the others by that much, a replica is of no use, usual or not

Found = tuple[Replica, EjectionReason]


class Ejection:
    def __init__(self, options: EjectionOptions) -> None:
        self.options = options
        self._next_rates = 0.0

    def count(self, replica: Replica, outcome: Outcome, words: str = "") -> EjectionReason | None:
        """Take in an outcome (`words`: of a failure). A reason: eject now, it failed too often in a row."""
        if outcome.failed:
            replica.failures += 1
            replica.consecutive_failures += 1
            replica.alike_failures = replica.alike_failures + 1 if words == replica.last_failure else 1
            replica.last_failure = words
            if self.options.enabled and replica.consecutive_failures >= self.options.consecutive:
                return in_a_row(replica, Rule.IN_A_ROW)
        elif outcome.taught:
            replica.successes += 1
            replica.consecutive_failures = 0
        return None

    def outliers(self, members: Sequence[Replica], out_already: int, now: float) -> list[Found]:
        """Who is out of line: by success rate, or by being slow for long. Bounded."""
        if not self.options.enabled or len(members) < 2:
            return []
        found = self._crawling(members, now)
        if now >= self._next_rates:
            self._next_rates = now + SWEEP
            crawling = [r for r, _ in found]
            found += [(r, reason) for r, reason in self._failing(members) if r not in crawling]
        room = max(1, int(self.options.most * (len(members) + out_already))) - out_already
        return found[: max(0, room)]

    def sentence(self, replica: Replica) -> float:
        """Seconds out, longer each time."""
        replica.ejections += 1
        return min(self.options.longest, self.options.seconds * replica.ejections)

    def _failing(self, members: Sequence[Replica]) -> list[Found]:
        options = self.options
        judged = [r for r in members if r.successes + r.failures >= options.least_requests]
        if len(judged) < options.least_replicas:
            return []
        rates = {r: r.successes / (r.successes + r.failures) for r in judged}
        mean = fmean(rates.values())
        line = mean - max(options.margin, options.deviations * pstdev(rates.values()))
        for r in judged:
            r.successes = r.failures = 0
        worst = sorted((r for r in judged if rates[r] < line), key=lambda r: rates[r])
        return [(r, EjectionReason(Rule.RATE, rates[r], mean, SWEEP, r.last_failure)) for r in worst]

    def _crawling(self, members: Sequence[Replica], now: float) -> list[Found]:
        """Slow against its own usual speed for long enough, while the others are not; or slow beyond any use.

        What all replicas have in common (heavier requests, a shared disk) cancels out: the median excess is taken off.
        A replica that is hardly used is no outlier: what it showed long ago is no reason.
        """
        options = self.options
        slow = log(options.slow)
        excesses = [r.speed.excess for r in members]
        common = median_low(excesses)
        useless = BEYOND_USE * options.slow * median_low([r.slowness * r.weight for r in members])
        found: list[Found] = []
        for r, excess in zip(members, excesses, strict=True):
            slowed = excess - common > slow + r.speed.margin
            crawls = slowed or r.slowness * r.weight > useless
            if not crawls or now - r.speed.stamp > options.slow_for:
                r.slow_since = INFINITY
            elif r.slow_since == INFINITY:
                r.slow_since = now
            elif now - r.slow_since >= options.slow_for:
                times = exp(excess - common) if slowed else r.slowness * r.weight * BEYOND_USE * options.slow / useless
                rule = Rule.SLOWED if slowed else Rule.USELESS
                found.append((r, EjectionReason(rule, times, 1.0, now - r.slow_since)))
        return found


def in_a_row(replica: Replica, rule: Rule) -> EjectionReason:
    count = replica.consecutive_failures
    alike = replica.alike_failures >= count
    return EjectionReason(rule, count, last_failure=replica.last_failure, all_alike=alike)
