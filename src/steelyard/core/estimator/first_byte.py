"""Seconds until the first byte of an answer, learned beside the seconds of the whole answer.

Idea: a long prompt delays the first byte, a long answer does not, so it has a base of its own.

Formula: first byte = base(features) × slowness(replica) × slowdown(requests there). The base is constant or additive
over features; slowness and slowdown are the estimator's.

Source: docs/decisions/0024-deadlines.md. Limits: assumes that sharing an engine delays the first byte like the rest.
"""

from __future__ import annotations

from math import exp, log

import numpy as np
from numpy.typing import NDArray

from .regression import AdditiveForm, ConstantForm, usual_sizes

BLOCK_ANSWERS = 64
EARLY_BLOCK_ANSWERS = 8
EARLY_ANSWERS = 64  # learned from in small blocks
ANSWERS_BEFORE_SAMPLING = 1024  # after which one in SAMPLE_EVERY is learned from
SAMPLE_EVERY = 4
DECAY_PER_ANSWER = 0.998
ERROR_DECAY_PER_ANSWER = 0.99
REQUIRED_ERROR_RATIO = 0.95  # of squared errors, for features to be used
MIN_SECONDS = 1e-6
MAX_FEATURE = 1e12


class FirstByteEstimator:
    def __init__(self) -> None:
        self.seen = 0
        self._rows: list[tuple[tuple[float, ...], float]] = []
        self._block = EARLY_BLOCK_ANSWERS
        self._skipped = 0
        self._width = 0
        self._constant = ConstantForm()
        self._adding: AdditiveForm | None = None
        self._features_help = False
        self._lowest = self._highest = 0.0  # ln seconds seen: nothing is predicted far outside

    def seconds(self, features: tuple[float, ...]) -> float:
        """Alone on a typical replica; 0.0 while nothing is known."""
        if not self.seen:
            return 0.0
        adding = self._adding
        if adding is None or not self._features_help or len(features) != self._width:
            return exp(self._constant.ln)
        try:
            ln = adding.ln_seconds(features)
        except ValueError:  # a negative feature
            ln = self._lowest
        return exp(ln if self._lowest <= ln <= self._highest else self._highest if ln > self._highest else self._lowest)

    def observe(self, features: tuple[float, ...], seconds: float) -> None:
        """An answer began after `seconds`, as if alone on a typical replica."""
        if self.seen > ANSWERS_BEFORE_SAMPLING:
            self._skipped += 1
            if self._skipped < SAMPLE_EVERY:
                return
            self._skipped = 0
        self._rows.append((features, log(seconds if seconds > MIN_SECONDS else MIN_SECONDS)))
        if len(self._rows) >= self._block:
            self._learn_block()

    def shift(self, ln: float) -> None:
        self._constant.shift(ln)
        if self._adding is not None:
            self._adding.shift(ln)
        self._lowest += ln
        self._highest += ln

    def _learn_block(self) -> None:
        block, self._rows = self._rows, []
        width = len(block[-1][0])
        rows = [row for row in block if len(row[0]) == width and all(0.0 <= x <= MAX_FEATURE for x in row[0])]
        if not rows:
            return
        features = np.array([row[0] for row in rows], dtype=np.float64)
        ln_seconds = np.array([row[1] for row in rows])
        if width != self._width or not self.seen:
            self._start_over(width, features)
        self._learn(features, ln_seconds)
        self._lowest = min(self._lowest, float(ln_seconds.min()) - 1.0)
        self._highest = max(self._highest, float(ln_seconds.max()) + 1.0)
        self.seen += len(rows)
        self._block = BLOCK_ANSWERS if self.seen >= EARLY_ANSWERS else EARLY_BLOCK_ANSWERS

    def _learn(self, features: NDArray[np.float64], ln_seconds: NDArray[np.float64]) -> None:
        count = len(ln_seconds)
        for form in (self._constant, self._adding):
            if form is not None:
                if self.seen:
                    form.score(features, ln_seconds, ERROR_DECAY_PER_ANSWER**count)
                form.learn(features, ln_seconds, DECAY_PER_ANSWER**count)
        self._features_help = (
            self._adding is not None and self._adding.error < REQUIRED_ERROR_RATIO * self._constant.error
        )

    def _start_over(self, width: int, features: NDArray[np.float64]) -> None:
        self._width = width
        self._constant = ConstantForm()
        self._lowest, self._highest = float("inf"), float("-inf")
        self._adding = AdditiveForm(usual_sizes(features)) if width else None
