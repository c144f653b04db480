"""Means over seeds, with their 95 % confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt

# Student's t, two-sided 95 %, for 1, 2, … 30 degrees of freedom; beyond, that of fewer degrees, on the safe side.
_STUDENT_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_STUDENT_T_95_LARGE = ((120, 1.980), (60, 2.000), (40, 2.021), (31, 2.042))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and the half-width of its 95 % confidence interval: nan with a single seed."""

    mean: float
    half_width: float = nan


def estimate(values: Sequence[float]) -> Estimate:
    n = len(values)
    if not n:
        return Estimate(nan)
    mean = sum(values) / n
    if n == 1:
        return Estimate(mean)
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    return Estimate(mean, student_t(n - 1) * sqrt(variance / n))


def student_t(freedom: int) -> float:
    if freedom <= len(_STUDENT_T_95):
        return _STUDENT_T_95[freedom - 1]
    return next(t for least, t in _STUDENT_T_95_LARGE if freedom >= least)
