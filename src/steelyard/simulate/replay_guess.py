"""What requests ask for that nobody finished. No guess is above the largest that was seen, or below the least."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from .replay_servers import FloatArray


@dataclass(frozen=True)
class WorkPrior:
    """As what is known of each says, spread as the others are around that. Logarithms of seconds at speed 1."""

    typical: FloatArray  # by request
    at_least: FloatArray  # by request: so much was done when it was cut off; -inf: nothing is known
    spread: FloatArray  # of the others
    least: float
    most: float

    def draw(self, rng: Random) -> FloatArray:
        """Seconds, by request."""
        drawn = self.typical + np.array(rng.choices(self.spread.tolist(), k=len(self.typical)))
        ordered = np.sort(self.spread)
        for n in np.flatnonzero(drawn < self.at_least):  # once more, of what leaves room for that which was done
            first = int(np.searchsorted(ordered, self.at_least[n] - self.typical[n]))
            if first < len(ordered):
                drawn[n] = self.typical[n] + ordered[rng.randrange(first, len(ordered))]
        return np.asarray(np.exp(np.maximum(np.clip(drawn, self.least, self.most), self.at_least)))


def fit_work_prior(
    typical: FloatArray, at_least: FloatArray, residual: FloatArray, seen: FloatArray, told: NDArray[np.int64]
) -> WorkPrior:
    """`seen`: work of the requests that were finished; `told`: requests that the fit knows."""
    known = typical[told]
    within = np.clip(typical, known.min(), known.max())
    least, most = float(np.log(seen.min())), float(np.log(seen.max()))
    return WorkPrior(within, at_least, residual, least, most)
