"""Medians and deviations of very many numbers."""

from __future__ import annotations

from array import array
from statistics import fmean, pstdev

import numpy as np

MANY = 64  # above, vectors are faster


def lower_median(values: array[float]) -> float:
    """As `statistics.median_low`."""
    place = (len(values) - 1) // 2
    if len(values) <= MANY:
        return sorted(values)[place]
    return float(np.partition(np.frombuffer(values), place)[place])


def mean_and_stdev(values: array[float]) -> tuple[float, float]:
    if len(values) <= MANY:
        return fmean(values), pstdev(values)
    numbers = np.frombuffer(values)
    return float(numbers.mean()), float(numbers.std())
