"""What a form of regression.py predicts for one request, apart from its learning to be compiled."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Final

MIN_RELATIVE_FEATURE: Final = 0.01  # of a feature's usual size: what zero counts as in a logarithm


class LinearPrediction:
    """ln seconds = constant + Σ weightᵢ · ln(scaleᵢ · featureᵢ + MIN_RELATIVE_FEATURE), or with `additive`
    ln(constant + Σ weightᵢ · scaleᵢ · featureᵢ) + bias."""

    def __init__(
        self, weights: list[float], scales: list[float], constant: float, bias: float = 0.0, additive: bool = False
    ) -> None:
        self._weights = weights
        self._scales = scales
        self._constant = constant
        self._bias = bias
        self._additive = additive

    def ln_seconds(self, features: Sequence[float]) -> float:
        """ValueError: a feature is negative."""
        total = self._constant
        scales = self._scales
        additive = self._additive
        for place, weight in enumerate(self._weights):
            scaled = features[place] * scales[place]
            total += weight * (scaled if additive else log(scaled + MIN_RELATIVE_FEATURE))
        return log(total) + self._bias if additive else total
