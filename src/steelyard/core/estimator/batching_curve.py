"""The batching curve: how much slower a request gets with n on the replica at once, learned for the whole pool.

Formula: slowdown(n) = n^ε. A serial server has ε = 1, a perfect batch ε = 0; engines lie between. ε is the slope of
ln(seconds / expected seconds alone) over ln(n at dispatch), both against the usual of the same replica and the mean of
the same block: slow replicas are crowded, and requests may differ at busy times. Later n depends on the request's size.

It gives a clock of attained service: while n run, each advances 1 / slowdown(n) of a second per second, so what a
request attained from dispatch to finish is what it would have taken alone.

Limits: one ε for the n that usually occur. A free curve, and a slope corrected step by step, both drifted.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log

import numpy as np
from numpy.typing import NDArray

from .slowness import SlownessFilter

MAX_CONCURRENCY = 512
PRIOR_ELASTICITY = 0.3  # rather a batch than a server
PRIOR_WEIGHT = 4.0  # Σ (ln n - mean)² that this is worth
MIN_ELASTICITY = 0.1
# By which replicas are compared: where ε came out low, 80 requests would hardly be in the way, one replica would look
# a little faster, and get everything.
MIN_CHOICE_ELASTICITY = 0.5
DECAY_PER_REQUEST = 0.999
BASELINE_LEARNING_RATE = 1 / 50  # per request
# How far off ε may be: at first (in a queue a small request waits for large ones), and ever (no ε holds for every n).
INITIAL_ELASTICITY_MARGIN, MIN_ELASTICITY_MARGIN = 1.1, 0.1


class BatchingCurve:
    def __init__(self) -> None:
        self.flat = True  # nothing but n = 1 seen
        self.elasticity = PRIOR_ELASTICITY
        self.certainty = 0.0  # decayed Σ (ln n - mean)², means by block
        self._covariance = 0.0
        self.elasticity_margin = INITIAL_ELASTICITY_MARGIN  # how far off ε may be
        self.progress: list[float] = []  # by n: work attained per second by each
        self.interference: list[float] = []  # by n: share of the work already there that delays the n-th …
        self.choice_interference: list[float] = []  # … and what a choice counts of it
        self._tabulate()

    def observe(self, block: Iterable[tuple[SlownessFilter, float, float]]) -> None:
        """Of each request: its replica, n at dispatch, and its seconds / those expected alone on a typical replica."""
        self.flat = False
        crowd: list[float] = []
        stretch: list[float] = []
        for usual, n, ratio in block:
            x, y = log(n), log(ratio)
            if usual.baseline_stretch:
                crowd.append(x - usual.baseline_crowd)
                stretch.append(y - usual.baseline_stretch)
                usual.baseline_crowd += BASELINE_LEARNING_RATE * (x - usual.baseline_crowd)
                usual.baseline_stretch += BASELINE_LEARNING_RATE * (y - usual.baseline_stretch)
            else:
                usual.baseline_crowd, usual.baseline_stretch = x, y
        if not crowd:
            return
        dx, dy = np.array(crowd), np.array(stretch)
        dx = dx - dx.mean()
        fade = DECAY_PER_REQUEST ** len(dx)
        self.certainty = fade * self.certainty + float(dx @ dx)
        self._covariance = fade * self._covariance + float(dx @ (dy - dy.mean()))
        slope = (self._covariance + PRIOR_WEIGHT * PRIOR_ELASTICITY) / (self.certainty + PRIOR_WEIGHT)
        self.elasticity = min(1.0, max(MIN_ELASTICITY, slope))
        self._tabulate()

    @property
    def doubt(self) -> float:
        """The standard error of ε, if seconds vary as much as they do where sizes are unknown."""
        return float((self.certainty + PRIOR_WEIGHT) ** -0.5)

    def discount_evidence(self) -> None:
        """The range of n is about to change."""
        self._covariance *= 0.1
        self.certainty *= 0.1
        self._tabulate()

    def _tabulate(self) -> None:
        self.elasticity_margin = max(
            MIN_ELASTICITY_MARGIN, INITIAL_ELASTICITY_MARGIN * (PRIOR_WEIGHT / (PRIOR_WEIGHT + self.certainty)) ** 0.5
        )
        n = np.maximum(np.arange(MAX_CONCURRENCY + 1), 1.0)
        self.progress = (n**-self.elasticity).tolist()
        self.interference = _interference(n, self.elasticity)
        self.choice_interference = _interference(n, max(self.elasticity, MIN_CHOICE_ELASTICITY))

    def slowdown(self, n: float) -> float:
        return float(max(n, 1.0) ** self.elasticity)


def _interference(n: NDArray[np.float64], elasticity: float) -> list[float]:
    shares: list[float] = ((n[1:] ** elasticity - 1.0) / np.maximum(n[1:] - 1.0, 1.0)).tolist()
    return [0.0, *shares]
