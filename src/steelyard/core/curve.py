"""The batching curve: how much slower a request gets with n on the replica at once, learned for the whole pool.

One number, the elasticity ε: slowdown(n) = n^ε. A serial server has ε = 1, whether it queues or shares its time; a
perfect batch has ε = 0; real engines lie between, and ε is what holds around the n they usually see. It is the slope of
ln(seconds / expected seconds alone) over ln(n at dispatch): n at dispatch, because later n depends on the request's own
size; and against the mean of the same block of requests, because at busier times requests may be other ones. (A curve
free at every n, and a slope corrected step by step, were tried; both wandered off.)

It makes a clock of attained work: while n run, each advances 1 / slowdown(n) of a second per second. What a request
attained from dispatch to finish is what it would have taken alone. The sum over all requests of a serial server is its
busy time, whatever the order in which it serves them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST = 512
UNKNOWN = 0.3  # before anything is seen: rather a batch than a server
BELIEF = 4.0  # Σ (ln n - mean)² that this assumption is worth
LEAST = 0.1  # nothing is so parallel that it does not matter how many are there
FORGET = 0.999  # per request


class BatchingCurve:
    def __init__(self) -> None:
        self.flat = True  # nothing but n = 1 seen
        self.elasticity = UNKNOWN
        self.certainty = 0.0  # decayed Σ (ln n - mean)², means by block
        self._covariance = 0.0
        self.progress: list[float] = []  # by n, 0 to MOST: work attained per second by each of n
        self.interference: list[float] = []  # by n: the part of the work already there that delays the n-th
        self._tabulate()

    def observe(self, n: NDArray[np.float64], ln_stretch: NDArray[np.float64]) -> None:
        """Take in a block: requests on the replica at dispatch, and ln(seconds / expected seconds alone)."""
        self.flat = False
        x = np.log(n)
        x = x - x.mean()
        fade = FORGET ** len(x)
        self.certainty = fade * self.certainty + float(x @ x)
        self._covariance = fade * self._covariance + float(x @ (ln_stretch - ln_stretch.mean()))
        slope = (self._covariance + BELIEF * UNKNOWN) / (self.certainty + BELIEF)
        self.elasticity = min(1.0, max(LEAST, slope))
        self._tabulate()

    def doubt(self) -> None:
        """The range of n is about to change: what was learned is a guess there."""
        self._covariance *= 0.1
        self.certainty *= 0.1

    def _tabulate(self) -> None:
        n = np.maximum(np.arange(MOST + 1), 1.0)
        slow = n**self.elasticity
        self.progress = (1.0 / slow).tolist()
        self.interference = np.append([0.0], (slow[1:] - 1.0) / np.maximum(n[1:] - 1.0, 1.0)).tolist()

    def at(self, n: float) -> float:
        return float(max(n, 1.0) ** self.elasticity)
