"""An upper bound of bytes by features: a sum of non-negative simple terms.

Formula: a constant, each feature and powers of it, products of two, and the square of one over another (attention is
elements² / batch, images are linear, activations are elements × batch). Of some thirty terms two to six are in use.

Source: docs/decisions/0014-bytes-of-a-request.md. Limits: monotonic in all features together, not in each alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

MAX_FEATURE = 1e12  # a larger feature is a mistake
MAX_FEATURES = 4  # the first ones
UNSEEN_FEATURE_FACTOR = 4.0  # for a request with a feature that was always zero before
TERM_POWERS: tuple[float, ...] = (0.5, 0.75, 1.25, 1.5, 2.0)

Term = tuple[int, float, int]  # v[i]**p · v[j], where v is 1 and then the features; j negative: / v[-j]
FIRST_FEATURE: Term = (0, 1.0, 1)


@cache
def basis(width: int) -> tuple[Term, ...]:
    """Of terms that cannot be told apart the first is taken: one that errs upwards for other shapes."""
    features = range(1, width + 1)
    ratios = [(i, 2.0, -j) for i in features for j in features if i != j]
    linear = [(0, 1.0, i) for i in features]
    powers = [(i, power, 0) for i in features for power in TERM_POWERS]
    products = [(i, 1.0, j) for i in features for j in features if i < j]
    return ((0, 1.0, 0), *ratios, *linear, *powers, *products)


class UpperBound:
    """`least` and `largest` seen of each feature; beyond `limits` the bound grows in proportion."""

    __slots__ = ("coefficients", "largest_seen", "limits", "smallest_seen", "terms")

    def __init__(
        self, least: Sequence[float], largest: Sequence[float], limits: Sequence[float], coefficients: Sequence[float]
    ) -> None:
        self.smallest_seen = tuple(least)
        self.largest_seen = tuple(largest)
        self.limits = tuple(limits)
        self.coefficients = tuple(coefficients)  # one for each term of the basis
        self.terms = [
            (c, i, power, j)
            for c, (i, power, j) in zip(self.coefficients, basis(len(self.largest_seen)), strict=True)
            if c > 0.0
        ]

    def bytes_for(self, features: Sequence[float]) -> float:
        if len(features) == len(self.limits):
            for a, limit in zip(features, self.limits, strict=True):
                if not 0.0 <= a <= limit:
                    break
            else:
                return self._sum(features)
        # A feature that is missing or nonsense might be anything: whichever is worse.
        return max(self._at(self._tidy(features, seen)) for seen in (self.largest_seen, self.smallest_seen))

    def is_extrapolated(self, features: Sequence[float]) -> bool:
        """Is this so far from what was seen that the bound is a guess?"""
        x = self._tidy(features, self.largest_seen)
        if self._beyond(x) > 1.0:
            return True
        divisors = [-j - 1 for _, _, _, j in self.terms if j < 0]
        return any(x[n] < self.smallest_seen[n] for n in divisors)

    def _at(self, x: Sequence[float]) -> float:
        inside = self._sum([min(a, limit) for a, limit in zip(x, self.limits, strict=True)])
        return max(self._sum(x), self._beyond(x) * inside)

    def _sum(self, x: Sequence[float]) -> float:
        v = (1.0, *x)
        total = 0.0
        for c, i, power, j in self.terms:
            if i == 0:
                total += c * v[j]
            elif j >= 0:
                total += c * v[i] ** power * v[j]
            else:
                total += c * v[i] ** power / (v[-j] if v[-j] > 1.0 else 1.0)
        return total

    def _beyond(self, x: Sequence[float]) -> float:
        """How many times larger than the limits, in the feature where it is most so."""
        most, unseen = 1.0, 1.0
        for a, limit in zip(x, self.limits, strict=True):
            if a > limit > 0.0:
                most = max(most, a / limit)
            elif a > limit:
                unseen = UNSEEN_FEATURE_FACTOR
        return most * unseen

    def _tidy(self, features: Sequence[float], unknown: Sequence[float]) -> Sequence[float]:
        known = [MAX_FEATURE if a > MAX_FEATURE else a for a in features]
        return [known[n] if n < len(known) and known[n] >= 0.0 else instead for n, instead in enumerate(unknown)]

    def to_numbers(self) -> tuple[float, ...]:
        used = [(float(n), c) for n, c in enumerate(self.coefficients) if c > 0.0]
        seen = (*self.smallest_seen, *self.largest_seen, *self.limits)
        return (float(len(self.largest_seen)), *seen, *(x for pair in used for x in pair))

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> UpperBound:
        width = int(numbers[0])
        coefficients = [0.0] * len(basis(width))
        seen, rest = numbers[1 : 1 + 3 * width], numbers[1 + 3 * width :]
        for n, c in zip(rest[::2], rest[1::2], strict=True):
            coefficients[int(n)] = c
        return cls(seen[:width], seen[width : 2 * width], seen[2 * width :], coefficients)
