"""Three forms that predict seconds from features; the estimator uses the one with the least recent error.

Formula: additive a₀ + Σ aᵢ·xᵢ (input and output tokens), multiplicative exp(b₀ + Σ bᵢ·ln xᵢ) (steps × images), or
constant. Each is least squares with forgetting: moments fade and add up, with one small solve a block.

Source: the study in docs/decisions/0003-estimator.md: no form wins on all traces, and choosing by decayed error is
never far from the best. Limits: no interactions beyond these forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np
from numpy.typing import NDArray

from .prediction import MIN_RELATIVE_FEATURE, LinearPrediction

Array = NDArray[np.float64]

MIN_FEATURE_SCALE = 1e-6
RIDGE_OBSERVATIONS = 1.0  # that a feature does not matter
MAX_SQUARED_ERROR = 9.0  # one absurd request must not topple a good form


def usual_sizes(features: Array) -> Array:
    """The median of each feature: one odd request does not set the scale."""
    usual = np.sort(features, axis=0)[len(features) // 2]  # np.median would import numpy.ma, here and now
    scale: Array = np.maximum(np.where(usual > 0.0, usual, features.mean(axis=0)), MIN_FEATURE_SCALE)
    return scale


class RegressionForm:
    """`error`: decayed mean squared error on requests it had not learned from yet."""

    def __init__(self) -> None:
        self.error = 1.0
        self._scored = 0.0

    @property
    def prediction(self) -> LinearPrediction:
        """As of now, for single requests."""
        raise NotImplementedError

    def ln_seconds(self, features: Sequence[float]) -> float:
        return self.prediction.ln_seconds(features)

    def predict(self, features: Array) -> Array:
        """ln seconds of a block, a row each."""
        raise NotImplementedError

    def learn(self, features: Array, ln_seconds: Array, forget: float) -> None:
        raise NotImplementedError

    def shift(self, ln: float) -> None:
        """Everything is e^ln longer: the typical replica was redefined."""
        raise NotImplementedError

    def score(self, features: Array, ln_seconds: Array, forget: float) -> None:
        miss = np.minimum((ln_seconds - self.predict(features)) ** 2, MAX_SQUARED_ERROR)
        # A ratio of decayed sums: the first block counts fully.
        weight = self._scored * forget + len(miss)
        self.error = (self.error * self._scored * forget + float(miss.sum())) / weight
        self._scored = weight


class ConstantForm(RegressionForm):
    def __init__(self) -> None:
        super().__init__()
        self.ln = 0.0
        self._weight = 0.0

    @property
    def prediction(self) -> LinearPrediction:
        return LinearPrediction([], [], self.ln)

    def predict(self, features: Array) -> Array:
        return np.full(len(features), self.ln)

    def learn(self, features: Array, ln_seconds: Array, forget: float) -> None:
        weight = self._weight * forget + len(ln_seconds)
        self.ln = (self.ln * self._weight * forget + float(ln_seconds.sum())) / weight
        self._weight = weight

    def shift(self, ln: float) -> None:
        self.ln += ln


class _LeastSquaresForm(RegressionForm):
    def __init__(self, usual: Array) -> None:
        super().__init__()
        width = len(usual) + 1
        self._per_usual: list[float] = (1.0 / usual).tolist()  # features in units of their usual size
        self._gram: Array = np.zeros((width, width))
        self._moment: Array = np.zeros(width)

    def _add(self, columns: Array, targets: Array, forget: float) -> None:
        self._gram = forget * self._gram + columns.T @ columns
        self._moment = forget * self._moment + columns.T @ targets


class MultiplicativeForm(_LeastSquaresForm):
    """ln seconds = intercept + Σ weight · ln(feature / usual + MIN_RELATIVE_FEATURE)."""

    def __init__(self, usual: Array) -> None:
        super().__init__(usual)
        self._weights: list[float] = [0.0] * len(usual)
        self._intercept = 0.0

    @property
    def prediction(self) -> LinearPrediction:
        return LinearPrediction(self._weights, self._per_usual, self._intercept)

    def _columns(self, features: Array) -> Array:
        return np.column_stack([np.log(features * self._per_usual + MIN_RELATIVE_FEATURE), np.ones(len(features))])

    def predict(self, features: Array) -> Array:
        return np.asarray(self._columns(features) @ np.array([*self._weights, self._intercept]))

    def learn(self, features: Array, ln_seconds: Array, forget: float) -> None:
        self._add(self._columns(features), ln_seconds, forget)
        # On centred moments, so that the ridge pulls towards the plain mean and not towards one second.
        count = self._gram[-1, -1]
        mean = self._gram[-1, :-1] / count
        spread = self._gram[:-1, :-1] - count * np.outer(mean, mean)
        cross = self._moment[:-1] - mean * self._moment[-1]
        weights = np.linalg.solve(spread + RIDGE_OBSERVATIONS * np.eye(len(mean)), cross)
        self._weights = weights.tolist()
        self._intercept = float(self._moment[-1] / count - weights @ mean)

    def shift(self, ln: float) -> None:
        self._intercept += ln
        self._moment = self._moment + ln * self._gram[-1]


class AdditiveForm(_LeastSquaresForm):
    """seconds = c + Σ coefficient · feature, none negative, weighted by 1/predicted²: relative error counts."""

    def __init__(self, usual: Array) -> None:
        super().__init__(usual)
        self._coefficients: list[float] = []  # per feature, in its own unit
        self._constant = 1.0
        self._bias = ConstantForm()  # least squares of seconds and of ln seconds differ by about σ²/2

    @property
    def prediction(self) -> LinearPrediction:
        return LinearPrediction(
            self._coefficients, [1.0] * len(self._coefficients), self._constant, self._bias.ln, additive=True
        )

    def _plain(self, features: Array) -> Array:
        if not self._coefficients:
            return np.zeros(len(features))
        return np.asarray(np.log(features @ np.array(self._coefficients) + self._constant))

    def predict(self, features: Array) -> Array:
        return np.asarray(self._plain(features) + self._bias.ln)

    def learn(self, features: Array, ln_seconds: Array, forget: float) -> None:
        seconds = np.exp(ln_seconds)
        guess = np.exp(self.predict(features)) if self._coefficients else np.full(len(seconds), seconds.mean())
        guess = guess.clip(1e-9, 1e9)
        x = np.column_stack([features * self._per_usual, np.ones(len(features))]) / guess[:, None]
        self._add(x, seconds / guess, forget)
        solved = _nonnegative_least_squares(self._gram, self._moment)
        self._coefficients = (solved[:-1] * self._per_usual).tolist()
        self._constant = max(float(solved[-1]), 1e-9)
        self._bias.learn(features, ln_seconds - self._plain(features), forget)

    def shift(self, ln: float) -> None:
        factor = exp(ln)
        self._moment = self._moment * factor
        self._coefficients = [c * factor for c in self._coefficients]
        self._constant *= factor


def _nonnegative_least_squares(gram: Array, moment: Array) -> Array:
    """Solve, drop the most negative, again."""
    width = len(moment)
    solved = np.zeros(width)
    kept = np.arange(width)
    ridge = np.diag(1e-6 * np.diag(gram) + 1e-12)  # each column by its own size
    while len(kept):
        part = np.linalg.solve((gram + ridge)[np.ix_(kept, kept)], moment[kept])
        if part.min() >= 0.0:
            solved[kept] = part
            break
        kept = np.delete(kept, int(part.argmin()))
    return solved
