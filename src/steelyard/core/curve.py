"""The batching curve: how much slower a request gets with n on the replica at once, learned for the whole pool.

Kept in bins of n that grow by half, interpolated, never falling, 1 at n = 1. A serial server that queues shows up as
curve(n) = n; an engine that batches well stays near 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

KNOTS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], dtype=np.float64)
MEMORY = 200.0  # observations a bin remembers
FEW = 8  # observations before a bin is believed fully
FADE = 0.999  # of a bin's count per block: what is not seen again is forgotten, and explored again


class BatchingCurve:
    def __init__(self) -> None:
        self._ln = np.zeros(len(KNOTS))
        self._count = np.zeros(len(KNOTS))
        self.flat = True  # nothing but n = 1 seen: everyone may skip the lookups
        self.slowdown: list[float] = [1.0, 1.0]  # by n, as far as seen
        self.interference: list[float] = [0.0, 0.0]  # by n: the part of the work already there that delays a newcomer

    def observe(self, concurrency: NDArray[np.float64], ln_ratio: NDArray[np.float64]) -> None:
        """Take in a block: requests on the replica at dispatch, and ln(seconds / seconds alone)."""
        self.flat = False
        bins = np.searchsorted(KNOTS, concurrency, side="right") - 1
        self._count *= FADE
        for b in np.unique(bins):
            here = ln_ratio[bins == b]
            weight = len(here) / min(self._count[b] + len(here), MEMORY)
            self._ln[b] += min(weight, 1.0) * (float(here.mean()) - self._ln[b])
            self._count[b] += len(here)
        seen = np.flatnonzero(self._count >= FEW)
        if len(seen):
            self._tabulate(seen)

    def _tabulate(self, seen: NDArray[np.intp]) -> None:
        knots = KNOTS[seen]
        # Against the lowest n seen: what is off there too is the base's error, not the curve's.
        rising = np.exp(np.maximum.accumulate(self._ln[seen] - self._ln[seen[0]]))
        # One knot past what was seen, so that a limit may grow; there the average slope so far goes on: hoping for free
        # room would invite a pile-up.
        last = knots[-1]
        beyond = KNOTS[min(int(seen[-1]) + 1, len(KNOTS) - 1)]
        slope = (rising[-1] - 1.0) / max(last - 1.0, 1.0)
        ns = np.arange(1, int(beyond) + 1)
        slow = np.interp(ns, knots, rising)
        slow[int(last) :] = rising[-1] + slope * (ns[int(last) :] - last)
        self.slowdown = [1.0, *slow.tolist()]
        self.interference = [0.0, *np.clip((slow - 1.0) / np.maximum(ns - 1, 1), 0.0, 1.0).tolist()]

    def at(self, n: int) -> float:
        table = self.slowdown
        return table[n] if n < len(table) else table[-1] * n / (len(table) - 1)
