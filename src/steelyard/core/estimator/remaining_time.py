"""How much longer a running request will take, given how long it has run.

Formula: with R = actual / predicted, a request that has run x times its estimate has E[R − x | R > x] times its
estimate left (mean residual life): one far past its estimate is expected to go on.

Limits: one distribution for a pool, of the last WINDOW_REQUESTS; beyond what was seen, OVERRUN_FACTOR × the age.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

STEPS_PER_UNIT: Final = 8
MAX_AGE_ESTIMATES = 8  # the table covers ages up to 8 estimates
WINDOW_REQUESTS = 512
MIN_SAMPLES = 30
OVERRUN_FACTOR: Final = 0.5


class RemainingTime:
    def __init__(self) -> None:
        self._ratios: NDArray[np.float64] = np.zeros(0)
        self._ordered: list[float] = []
        self.mean = 1.0  # E[R]
        self.median = 1.0
        grid = np.arange(MAX_AGE_ESTIMATES * STEPS_PER_UNIT + 1) / STEPS_PER_UNIT
        # Before anything is known: on time, and OVERRUN of its age once late.
        self._prior = np.maximum(1.0 - grid, OVERRUN_FACTOR * grid)
        self._grid = grid
        self.table: list[float] = self._prior.tolist()

    def observe(self, ratios: Sequence[float]) -> None:
        self._ratios = np.concatenate([self._ratios, np.asarray(ratios, dtype=np.float64)])[-WINDOW_REQUESTS:]
        if len(self._ratios) < MIN_SAMPLES:
            return
        ordered = np.sort(np.minimum(self._ratios, 100.0))
        self.mean = float(ordered.mean())
        self.median = float(ordered[len(ordered) // 2])
        self._ordered = ordered.tolist()
        from_end = np.concatenate([np.cumsum(ordered[::-1])[::-1], [0.0]])
        first = np.searchsorted(ordered, self._grid, side="right")
        count = len(ordered) - first
        left = from_end[first] / np.maximum(count, 1) - self._grid
        # A mean over fewer than eight is mostly luck: lean on the prior.
        trust = np.minimum(count / 8.0, 1.0)
        self.table = (trust * left + (1.0 - trust) * self._prior).tolist()

    def quantile(self, q: float) -> float:
        ordered = self._ordered
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 1.0

    def after(self, age: float, predicted: float) -> float:
        """Expected seconds left of a request that has run for `age`."""
        # A driver's clock readings may be out of order.
        step = int(age / predicted * STEPS_PER_UNIT) if age > 0.0 else 0
        table = self.table
        if step < len(table):
            return predicted * table[step]
        return age * OVERRUN_FACTOR
