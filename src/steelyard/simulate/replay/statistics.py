"""Latencies as figures, and how far chance alone could have moved a p99: whole stretches of time drawn again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .server_models import FloatArray

BOOTSTRAP_BLOCKS = 40  # stretches of time: requests of one stretch depend on each other, those of two hardly
BOOTSTRAP_DRAWS = 200
INTERVAL_QUANTILES = (0.05, 0.95)
P99_QUANTILE = 0.99


@dataclass(frozen=True)
class LatencyFigures:
    """Latency of the answered requests, in seconds, and how many of all were not."""

    p50: float
    p90: float
    p99: float
    mean: float
    loss_share: float  # share failed or refused
    within_slo: float | None = None  # share of all within the promised latency, where that is known


def latency_figures(seconds: FloatArray, lost: int, promise: float | None) -> LatencyFigures:
    total = len(seconds) + lost
    if not len(seconds):
        nothing = float("nan")
        return LatencyFigures(nothing, nothing, nothing, nothing, 1.0 if lost else 0.0, 0.0 if promise else None)
    p50, p90, p99 = (float(value) for value in np.quantile(seconds, (0.5, 0.9, P99_QUANTILE)))
    kept = None if promise is None else float((seconds <= promise).sum()) / total
    return LatencyFigures(p50, p90, p99, float(seconds.mean()), lost / total, kept)


def p99_of(seconds: FloatArray) -> float:
    return float(np.quantile(seconds, P99_QUANTILE))


class BlockBootstrap:
    """The p99 of a run had other stretches of its time come more or less often. The same draws for every run."""

    def __init__(self, begin: float, seconds: float) -> None:
        self._edges = np.linspace(begin, begin + seconds, BOOTSTRAP_BLOCKS + 1)[1:-1]
        self._draws = np.random.default_rng(1).multinomial(
            BOOTSTRAP_BLOCKS, np.full(BOOTSTRAP_BLOCKS, 1.0 / BOOTSTRAP_BLOCKS), BOOTSTRAP_DRAWS
        )

    def p99s(self, born: FloatArray, seconds: FloatArray) -> FloatArray:
        order = np.argsort(seconds)
        ranked = seconds[order]
        block = np.searchsorted(self._edges, born[order], side="right")
        found = np.empty(BOOTSTRAP_DRAWS)
        for n, times in enumerate(self._draws):
            upto = np.cumsum(times[block])
            found[n] = ranked[np.searchsorted(upto, P99_QUANTILE * upto[-1])] if upto[-1] else np.nan
        return found[~np.isnan(found)]

    def interval(self, born: FloatArray, seconds: FloatArray) -> tuple[float, float]:
        """Within which the p99 would be nine times out of ten."""
        low, high = np.quantile(self.p99s(born, seconds), INTERVAL_QUANTILES)
        return float(low), float(high)
