"""The measured peaks of one kind of request, and the upper bound drawn from them.

Idea: at first EARLY_SAFETY_FACTOR × the largest counts for all, until a fit to some samples predicts the next ones.
Then terms of the features are fitted by relative error, non-negative (relative_fit.py), and lifted until hardly any
peak is above. The bound goes up at once and down in steps.

Source: docs/decisions/0014-bytes-of-a-request.md. Limits: trusted a little beyond the largest feature seen
(MAX_EXTRAPOLATION_FACTOR); larger requests run alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from math import frexp

import numpy as np
from numpy.typing import NDArray

from .relative_fit import fit, lift_to_upper_bound, sample_weights, weighted_quantile, without_outliers
from .upper_bound import UpperBound, basis

Array = NDArray[np.float64]
Row = tuple[tuple[float, ...], float, int]  # features, bytes, and which sample it was

FULL_TRUST_SAMPLES = 30  # after which features are believed in any case
EARLY_TRUST_SAMPLES = 10  # or sooner, if the last MIN_PREDICTED_IN_A_ROW were predicted within MAX_RELATIVE_ERROR
MIN_PREDICTED_IN_A_ROW = 6
MAX_RELATIVE_ERROR = 0.15
MIN_FIT_SAMPLES = 4
SAMPLES_PER_TERM = 3  # while few are known
SMALL_BLOCKS_UNTIL_SAMPLE = 256
SMALL_BLOCK_SAMPLES, LARGE_BLOCK_SAMPLES = 8, 32
UNDERESTIMATE_BLOCK_SAMPLES = 4  # after a peak above the bound
EARLY_SAFETY_FACTOR = 1.25  # × the largest seen, while few are known
MAX_SAMPLES = 384
BLEND_OLD_SHARE = 0.5  # per block
MAX_EXTRAPOLATION_FACTOR = 4.0  # beyond the largest feature, and no more than the range seen is wide
COVERED_QUANTILE = 0.99  # of the peaks
NEGLIGIBLE_TERM_SHARE = 0.005  # of the whole: such a term is left out
MIN_CHANGE_DOWN, MIN_CHANGE_UP = 0.98, 1.01  # smaller changes are not worth telling


class PeakModel:
    def __init__(self, prior: UpperBound) -> None:
        self.upper = prior
        self.width = len(prior.largest_seen)
        self.seen = 0
        self.last_sample = 0  # for the owner: number of the last sample of this kind
        self.other_shape_samples = 0  # for the owner: samples of another shape since then
        self._holds = any(prior.coefficients)  # the prior says something, and never proved too low
        self._keep_of = BLEND_OLD_SHARE if self._holds else 0.0  # share of the old bound in the next
        self.converged = self._holds  # more is known than the largest seen
        self._trial: Array | None = None  # a fit to the first samples, not lifted
        self._hits = 0  # predicted by it in a row
        self._waiting = 0
        self._cells: dict[tuple[int, ...], deque[Row]] = {}  # by the size of each feature, to a factor of two
        self._kept = 0
        self._least = [float("inf")] * self.width
        self._most = [0.0] * self.width

    def observe(self, features: tuple[float, ...], measured: float) -> bool:
        """True: the bound changed."""
        self._check(features, measured)
        self._keep((features, measured, self.seen))
        self.seen += 1
        self._waiting += 1
        block = SMALL_BLOCK_SAMPLES if self.seen <= SMALL_BLOCKS_UNTIL_SAMPLE else LARGE_BLOCK_SAMPLES
        if self.seen <= FULL_TRUST_SAMPLES:
            block = 1
        elif measured > self.upper.bytes_for(features):
            block = UNDERESTIMATE_BLOCK_SAMPLES
        if self._waiting < block:
            return False
        self._waiting = 0
        upper = self._next(features, measured)
        if not self._differs(upper):
            return False
        self.upper = upper
        return True

    def _keep(self, row: Row) -> None:
        """The newest of every size stay: large requests may be rare."""
        for n, x in enumerate(row[0]):
            self._least[n] = min(self._least[n], x)
            self._most[n] = max(self._most[n], x)
        self._cells.setdefault(tuple([frexp(x)[1] for x in row[0]]), deque()).append(row)
        self._kept += 1
        if self._kept > MAX_SAMPLES:
            fullest = max(self._cells, key=lambda cell: len(self._cells[cell]))
            self._cells[fullest].popleft()
            if not self._cells[fullest]:
                del self._cells[fullest]
            self._kept -= 1

    def _check(self, features: tuple[float, ...], measured: float) -> None:
        if self._trial is not None:
            predicted = float((columns_of([features]) @ self._trial)[0])
            self._hits = self._hits + 1 if abs(measured - predicted) <= MAX_RELATIVE_ERROR * predicted else 0

    def _covering(self, features: tuple[float, ...], measured: float) -> UpperBound:
        """The old bound, raised by what this sample lacked."""
        old = self.upper
        limits = [max(pair) for pair in zip(old.limits, self._most, strict=True)]
        said = UpperBound(self._least, self._most, limits, old.coefficients).bytes_for(features)
        if measured <= said:
            return UpperBound(self._least, self._most, limits, old.coefficients)
        self._holds = False
        self._keep_of = 0.0
        if not any(old.coefficients[1:]):
            limits = self._most  # the trend beyond it is unknown
        if said > 0.5 * measured:  # the right shape, perhaps, but too low
            factor = EARLY_SAFETY_FACTOR * measured / said
            coefficients = [factor * c for c in old.coefficients]
        else:
            coefficients = [old.coefficients[0] + EARLY_SAFETY_FACTOR * measured - said, *old.coefficients[1:]]
        return UpperBound(self._least, self._most, limits, coefficients)

    def _next(self, features: tuple[float, ...], measured: float) -> UpperBound:
        if self.seen < MIN_FIT_SAMPLES or (self._holds and self.seen < FULL_TRUST_SAMPLES):
            return self._covering(features, measured)
        shapes, measured_peaks, numbers = zip(*self._rows(), strict=True)
        columns, peaks = columns_of(shapes), np.array(measured_peaks)
        age = self.seen - 1.0 - np.array(numbers)
        few = self.seen < FULL_TRUST_SAMPLES
        fitted = fit(columns, peaks, sample_weights(age), self._terms() if few else columns.shape[1])
        self._trial = fitted if few else None
        if few and (self.seen < EARLY_TRUST_SAMPLES or self._hits < MIN_PREDICTED_IN_A_ROW):
            return self._covering(features, measured)
        self.converged = True
        return self._fitted(fitted, columns, peaks, age)

    def _terms(self) -> int:
        sizes = len({row[0] for row in self._rows()})  # sizes, not samples, tell terms apart
        return max(1, (sizes - 1) // SAMPLES_PER_TERM)

    def _fitted(self, fitted: Array, columns: Array, measured: Array, age: Array) -> UpperBound:
        wanted = lift_to_upper_bound(fitted, columns, measured, age)
        blend = (1.0 - self._keep_of) * wanted + self._keep_of * np.array(self.upper.coefficients)
        self._keep_of = BLEND_OLD_SHARE
        little = (columns * blend / (columns @ blend)[:, None]).max(axis=0) < NEGLIGIBLE_TERM_SHARE
        blend[1:][little[1:]] = 0.0
        predicted = columns @ blend
        normal = without_outliers(measured, predicted, age)
        ratios, weights = measured[normal] / predicted[normal], sample_weights(age[normal])
        blend *= max(1.0, weighted_quantile(ratios, weights, COVERED_QUANTILE))
        return UpperBound(self._least, self._most, self._limits(), blend.tolist())

    def _rows(self) -> Iterable[Row]:
        return chain.from_iterable(self._cells.values())

    def _limits(self) -> list[float]:
        if self.seen < FULL_TRUST_SAMPLES:
            return self._most
        return [
            most * min(MAX_EXTRAPOLATION_FACTOR, most / least) if least > 0.0 else most * MAX_EXTRAPOLATION_FACTOR
            for least, most in zip(self._least, self._most, strict=True)
        ]

    def _differs(self, upper: UpperBound) -> bool:
        columns = columns_of([row[0] for row in self._rows()])
        old = columns @ np.array(self.upper.coefficients)
        new = columns @ np.array(upper.coefficients)
        limits = zip(self.upper.limits, upper.limits, strict=True)
        return bool(
            ((new < MIN_CHANGE_DOWN * old) | (new > MIN_CHANGE_UP * old)).any()
            or any(b < MIN_CHANGE_DOWN * a or b > MIN_CHANGE_UP * a for a, b in limits)
        )


def columns_of(features: Sequence[tuple[float, ...]]) -> Array:
    v = np.array([(1.0, *x) for x in features])
    least = np.maximum(v, 1.0)
    terms = basis(v.shape[1] - 1)
    return np.column_stack([v[:, i] ** power * (v[:, j] if j >= 0 else 1.0 / least[:, -j]) for i, power, j in terms])
