"""A factor for each kind of request (a checkpoint, an adapter, an endpoint) that its features do not explain.

Formula: ln factor = (decayed mean of the kind's residuals − mean over all requests) × seen / (seen + PRIOR_REQUESTS),
so a kind with few requests counts as typical.

Source: docs/decisions/0003-estimator.md; on the diffusion trace kinds explain more than all features together. Limits:
MAX_KINDS kinds, the least recently seen is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Final

import numpy as np
from numpy.typing import NDArray

DECAY_PER_REQUEST: Final = 0.95  # of the kind
LEVEL_LEARNING_RATE: Final = 0.01
PRIOR_REQUESTS: Final = 5.0
MAX_KINDS = 4096


class KindOffsets:
    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float, int]] = {}  # decayed sum of residuals, decayed count, all ever seen
        self._level = 0.0  # decayed mean over all requests: that is the base's
        self.active = False

    def factor(self, kind: str) -> float:
        return exp(self._ln(kind))

    def _ln(self, kind: str) -> float:
        total, count, seen = self._sums.get(kind, (0.0, 0.0, 0))
        return (total / count - self._level) * seen / (seen + PRIOR_REQUESTS) if seen else 0.0

    def learn(self, kinds: Sequence[str], residuals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Takes in residuals without kind; returns the offsets as they were before."""
        self.active = True
        before = np.array([self._ln(kind) for kind in kinds])
        for kind, residual in zip(kinds, residuals.tolist(), strict=True):
            total, count, seen = self._sums.pop(kind, (0.0, 0.0, 0))
            self._sums[kind] = (total * DECAY_PER_REQUEST + residual, count * DECAY_PER_REQUEST + 1.0, seen + 1)
            total, count, _ = self._sums[kind]
            self._level += LEVEL_LEARNING_RATE * (total / count - self._level)
        while len(self._sums) > MAX_KINDS:
            del self._sums[next(iter(self._sums))]
        return before
