"""What requests ask for that nobody finished. No guess is above the largest that was seen, or below the least."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from .replay_servers import Numbers


@dataclass(frozen=True)
class Guesses:
    """As what is known of each says, spread as the others are around that. Logarithms of seconds at speed 1."""

    typical: Numbers  # by request
    at_least: Numbers  # by request: so much was done when it was cut off; -inf: nothing is known
    spread: Numbers  # of the others
    least: float
    most: float

    def draw(self, rng: Random) -> Numbers:
        """Seconds, by request."""
        drawn = self.typical + np.array(rng.choices(self.spread.tolist(), k=len(self.typical)))
        ordered = np.sort(self.spread)
        for n in np.flatnonzero(drawn < self.at_least):  # once more, of what leaves room for that which was done
            first = int(np.searchsorted(ordered, self.at_least[n] - self.typical[n]))
            if first < len(ordered):
                drawn[n] = self.typical[n] + ordered[rng.randrange(first, len(ordered))]
        return np.asarray(np.exp(np.maximum(np.clip(drawn, self.least, self.most), self.at_least)))


def guesses(typical: Numbers, at_least: Numbers, residual: Numbers, seen: Numbers, told: NDArray[np.int64]) -> Guesses:
    """`seen`: work of the requests that were finished; `told`: requests that the fit knows."""
    known = typical[told]
    within = np.clip(typical, known.min(), known.max())
    least, most = float(np.log(seen.min())), float(np.log(seen.max()))
    return Guesses(within, at_least, residual, least, most)
