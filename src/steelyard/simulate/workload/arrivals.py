"""Traffic that comes and goes: times of a steady stream, bent so that the rate follows a shape."""

from __future__ import annotations

from math import pi

import numpy as np
from numpy.typing import NDArray

from ..scenario.dynamics import TrafficShape

Array = NDArray[np.float64]
SINE_SEGMENTS = 512  # straight pieces that a sine is made of


class TimeWarp:
    """`bend` says when a stream of this shape has had as much as a steady one by the given times."""

    def __init__(self, shape: TrafficShape) -> None:
        self._times, self._factors = _rate_knots(shape)
        self._period = float(shape.period)
        gaps = np.diff(self._times)
        means = (self._factors[1:] + self._factors[:-1]) / 2
        self._amounts = np.concatenate([[0.0], np.cumsum(gaps * means)])  # what has come by each knot

    def warp(self, steady: Array) -> Array:
        if not self._period:
            return self._within(steady)
        whole = self._amounts[-1]
        rounds = np.floor(steady / whole)
        return np.asarray(rounds * self._period + self._within(steady - rounds * whole))

    def _within(self, amounts: Array) -> Array:
        """In the piece where the amount is reached the rate is f + k s, so that the amount grows by f s + k s² / 2."""
        last = len(self._times) - 2
        piece = np.clip(np.searchsorted(self._amounts, amounts, side="right") - 1, 0, last)
        start, gap = self._times[piece], self._times[piece + 1] - self._times[piece]
        f = self._factors[piece]
        k = (self._factors[piece + 1] - f) / np.where(gap > 0, gap, 1.0)
        rest = np.maximum(amounts - self._amounts[piece], 0.0)
        root = f + np.sqrt(np.maximum(f * f + 2 * k * rest, 0.0))
        return np.asarray(start + 2 * rest / np.where(root > 0, root, 1.0))


def _rate_knots(shape: TrafficShape) -> tuple[Array, Array]:
    if shape.kind == "diurnal":
        turn = np.linspace(0.0, 1.0, SINE_SEGMENTS + 1)
        wave = (1 - np.cos(2 * pi * turn)) / 2
        return turn * shape.period, shape.low + (shape.high - shape.low) * wave
    knots = shape.knots()
    end = shape.period or knots[-1][0] + 1.0  # the last factor holds until the period ends, or for ever
    knots.append((float(end), knots[-1][1]))
    return np.array([when for when, _ in knots]), np.array([factor for _, factor in knots])
