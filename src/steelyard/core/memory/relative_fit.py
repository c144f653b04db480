"""Non-negative least squares by relative error, lifted to an upper bound.

Formula: minimise Σ w · ((measured − fitted) / max(measured, fitted))² with coefficients ≥ 0, reweighted three times; a
term is added only if it explains more than noise. Then × the LIFT_QUANTILE of measured / fitted, plus a constant
(allocators round up).

Source: Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23. Limits: rare peaks of OUTLIER_FACTOR
times the fit are ignored as accidents, unless several are recent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DECAY_PER_SAMPLE = 0.995
MIN_SAMPLE_WEIGHT = 0.02  # nothing newer may be known of their size
LIFT_QUANTILE = 0.9875  # of measured / fitted
LIFT_MARGIN, LIFT_MARGIN_FEW_SAMPLES = 1.025, 1.05
MIN_SAMPLES_FOR_OUTLIERS = 30  # of fewer each counts
OUTLIER_FACTOR = 3.0  # × the fit: an accident, such as another's peak,
MAX_OUTLIER_SHARE = 0.04  # if as rare as this,
RECENT_SAMPLES, MAX_RECENT_OUTLIERS = 16, 4  # and few of them are recent
RIDGE_FACTOR = 1e-9
MIN_INDEPENDENT_SHARE = 1e-6  # of a term besides the others
TIE_TOLERANCE = 1e-6  # of terms that explain alike the first is taken
MIN_GAIN_OVER_NOISE = 4.0
MIN_RELATIVE_NOISE = 0.003


def fit(columns: Array, measured: Array, weights: Array, most: int) -> Array:
    """Least squares of the relative error, with at most `most` terms. Divided by the larger of measured and fitted, a
    peak far too high or too low has little say."""
    size = np.maximum(columns.max(axis=0), 1e-12)
    scale = measured
    coefficients = np.zeros(len(size))
    for _ in range(3):
        x = columns / size / scale[:, None]
        y = measured / scale
        gram = (x * weights[:, None]).T @ x
        length = np.maximum(np.sqrt(np.diag(gram)), 1e-150)
        moment = (x * weights[:, None]).T @ y / length
        gram = gram / np.outer(length, length) + RIDGE_FACTOR * np.eye(len(size))
        solved = nonnegative_least_squares(gram, moment, float(weights @ (y * y)), float(weights.sum()), most)
        coefficients = solved / length / size
        scale = np.maximum(measured, columns @ coefficients)
    return coefficients


def nonnegative_least_squares(gram: Array, moment: Array, whole: float, count: float, most: int) -> Array:
    """`whole`: the sum of squares to explain."""
    solved = np.zeros(len(moment))
    free = np.zeros(len(moment), dtype=bool)
    for _ in range(3 * len(moment)):
        gain = explained_gain(gram, moment, solved, free)
        noise = max((whole - float(moment @ solved)) / count, MIN_RELATIVE_NOISE**2)
        best = float(gain.max())
        if free.any() and (best <= MIN_GAIN_OVER_NOISE * noise or free.sum() >= most):
            break
        free[np.flatnonzero(gain >= (1.0 - TIE_TOLERANCE) * best)[0]] = True
        while free.any():
            now = np.flatnonzero(free)
            target = np.linalg.solve(gram[np.ix_(now, now)], moment[now])
            if target.min() > 0.0:
                solved[now] = target
                break
            # Towards the target until a coefficient hits zero, which is fixed there.
            have = solved[now]
            negative = target <= 0.0
            steps = have[negative] / np.maximum(have[negative] - target[negative], 1e-300)
            solved[now] = have + steps.min() * (target - have)
            stuck = now[negative][steps == steps.min()]
            solved[stuck] = 0.0
            free[stuck] = False
    return solved


def explained_gain(gram: Array, moment: Array, solved: Array, free: NDArray[np.bool_]) -> Array:
    """The sum of squares that each term would explain besides those in use."""
    slope = np.where(free, 0.0, np.maximum(moment - gram @ solved, 0.0))
    now = np.flatnonzero(free)
    across = gram[now]
    own = np.diag(gram) - (across * np.linalg.solve(gram[np.ix_(now, now)], across)).sum(axis=0)
    gain: Array = slope**2 / np.maximum(own, MIN_INDEPENDENT_SHARE)
    return gain


def lift_to_upper_bound(coefficients: Array, columns: Array, measured: Array, age: Array) -> Array:
    """The fit × a factor, as noise grows with size, plus a constant, as allocators round up."""
    weights = sample_weights(age)
    predicted = np.maximum(columns @ coefficients, 1e-6 * measured)
    normal = without_outliers(measured, predicted, age)
    measured, predicted, weights = measured[normal], predicted[normal], weights[normal]
    large = predicted >= weighted_quantile(predicted, weights, 0.5)
    margin = LIFT_MARGIN if len(measured) >= MIN_SAMPLES_FOR_OUTLIERS else LIFT_MARGIN_FEW_SAMPLES
    factor = margin * max(1.0, weighted_quantile(measured[large] / predicted[large], weights[large]))
    rest = 1.0
    if not large.all():
        rest = max(rest, weighted_quantile((measured - factor * predicted)[~large], weights[~large]))
    coefficients = factor * coefficients
    coefficients[0] += rest
    return coefficients


def sample_weights(age: Array) -> Array:
    return np.maximum(DECAY_PER_SAMPLE**age, MIN_SAMPLE_WEIGHT)


def without_outliers(measured: Array, predicted: Array, age: Array) -> NDArray[np.bool_]:
    odd = measured > OUTLIER_FACTOR * predicted
    accidents = (
        len(odd) >= MIN_SAMPLES_FOR_OUTLIERS
        and odd.mean() < MAX_OUTLIER_SHARE
        and odd[age < RECENT_SAMPLES].sum() < MAX_RECENT_OUTLIERS
    )
    return ~odd if accidents else np.ones(len(odd), dtype=bool)


def weighted_quantile(values: Array, weights: Array, at: float = LIFT_QUANTILE) -> float:
    order = values.argsort()
    sums = weights[order].cumsum()
    return float(values[order[min(int(sums.searchsorted(at * sums[-1])), len(values) - 1)]])
