"""Which replicas fail or crawl with real requests though they answer probes. Rules from Envoy, adapted to low rates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median_low, pstdev

from .options import EjectionOptions
from .outcome import Outcome
from .replica import Replica
from .request import INFINITY

SWEEP = 10.0  # seconds between looks at success rates


class Ejection:
    def __init__(self, options: EjectionOptions) -> None:
        self.options = options
        self._next_rates = 0.0

    def count(self, replica: Replica, outcome: Outcome) -> bool:
        """Take in an outcome. True: eject now, it failed too often in a row."""
        if outcome.failed:
            replica.failures += 1
            replica.consecutive_failures += 1
            return self.options.enabled and replica.consecutive_failures >= self.options.consecutive
        if outcome.taught:
            replica.successes += 1
            replica.consecutive_failures = 0
        return False

    def outliers(self, members: Sequence[Replica], out_already: int, now: float) -> list[Replica]:
        """Who is out of line with the others: by success rate, or by being slow for long. Bounded."""
        if not self.options.enabled or len(members) < 2:
            return []
        found = self._crawling(members, now)
        if now >= self._next_rates:
            self._next_rates = now + SWEEP
            found += [r for r in self._failing(members) if r not in found]
        room = max(1, int(self.options.most * (len(members) + out_already))) - out_already
        return found[: max(0, room)]

    def sentence(self, replica: Replica) -> float:
        """Seconds out, longer each time."""
        replica.ejections += 1
        return min(self.options.longest, self.options.seconds * replica.ejections)

    def _failing(self, members: Sequence[Replica]) -> list[Replica]:
        options = self.options
        judged = [r for r in members if r.successes + r.failures >= options.least_requests]
        if len(judged) < options.least_replicas:
            return []
        rates = {r: r.successes / (r.successes + r.failures) for r in judged}
        mean = fmean(rates.values())
        line = mean - max(options.margin, options.deviations * pstdev(rates.values()))
        for r in judged:
            r.successes = r.failures = 0
        return sorted((r for r in judged if rates[r] < line), key=lambda r: rates[r])

    def _crawling(self, members: Sequence[Replica], now: float) -> list[Replica]:
        """Slow against the pool's median, and slower than its weight promised, for long enough.

        Both: hardware declared slow is no outlier, nor is a replica that merely was given a large weight. Nor is one
        outlying that is hardly used: what it showed long ago, maybe just after its start, is no reason.
        """
        line = self.options.slow * median_low([r.slowness for r in members])
        promised = self.options.slow * median_low([r.slowness * r.weight for r in members])
        found = []
        for r in members:
            unused = r.speed is not None and now - r.speed.stamp > self.options.slow_for
            if unused or r.slowness <= line or r.slowness * r.weight <= promised:
                r.slow_since = INFINITY
            elif r.slow_since == INFINITY:
                r.slow_since = now
            elif now - r.slow_since >= self.options.slow_for:
                found.append(r)
        return found
