"""The batching curve: how much slower a request gets with n on the replica at once, learned for the whole pool.

Kept in bins of n that grow by half, interpolated, never falling, 1 at n = 1. A serial server that queues shows up as
curve(n) = n; an engine that batches well stays near 1.
"""

from __future__ import annotations

from math import exp

import numpy as np
from numpy.typing import NDArray

KNOTS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], dtype=np.float64)
MEMORY = 200.0  # observations a bin remembers
FEW = 8  # observations before a bin is believed fully
SLOWEST = 64.0


class BatchingCurve:
    def __init__(self) -> None:
        self._ln = np.zeros(len(KNOTS))
        self._count = np.zeros(len(KNOTS))
        self._highest = 0
        self.flat = True  # nothing but n = 1 seen: everyone may skip the lookups
        self.slowdown: list[float] = [1.0, 1.0]  # by n, as far as seen
        self.interference: list[float] = [0.0, 0.0]  # by n: the part of the work already there that delays a newcomer

    def observe(self, concurrency: NDArray[np.float64], ln_ratio: NDArray[np.float64]) -> None:
        """Take in a block: requests on the replica, and ln(seconds / seconds alone)."""
        if concurrency.max() <= 1.0 and self.flat:
            return
        self.flat = False
        bins = np.searchsorted(KNOTS, concurrency, side="right") - 1
        for b in np.unique(bins):
            here = ln_ratio[bins == b]
            weight = len(here) / min(self._count[b] + len(here), MEMORY)
            self._ln[b] += min(weight, 1.0) * (float(here.mean()) - self._ln[b])
            self._count[b] += len(here)
        self._highest = max(self._highest, int(bins.max()))
        self._tabulate()

    def anchor(self) -> float:
        """ln of the slowdown at the lowest n seen: the level the estimator's intercept should take over."""
        seen = np.flatnonzero(self._count)
        shift = float(self._ln[seen[0]]) if len(seen) else 0.0
        self._ln[seen] -= shift
        return shift

    def _tabulate(self) -> None:
        trust = np.minimum(self._count / FEW, 1.0)
        seen = np.flatnonzero(trust >= 1.0)
        if not len(seen):
            return
        rising = np.maximum.accumulate(np.maximum(self._ln[seen], 0.0))
        ns = np.arange(1, int(KNOTS[self._highest]) * 2 + 1)
        ln = np.interp(ns, KNOTS[seen], rising)
        slow = np.minimum(np.exp(ln), SLOWEST)
        # Past what was seen, go on with the last slope: hoping for free room there would invite a pile-up.
        last = int(KNOTS[seen[-1]])
        if len(seen) > 1 and len(ns) > last:
            slope = max(0.0, (exp(rising[-1]) - exp(rising[-2])) / (KNOTS[seen[-1]] - KNOTS[seen[-2]]))
            slow[last:] = np.minimum(slow[last - 1] + slope * (ns[last:] - last), SLOWEST)
        self.slowdown = [1.0, *slow.tolist()]
        self.interference = [0.0, *np.clip((slow - 1.0) / np.maximum(ns - 1, 1), 0.0, 1.0).tolist()]

    def at(self, n: int) -> float:
        table = self.slowdown
        return table[n] if n < len(table) else table[-1] * n / (len(table) - 1)
