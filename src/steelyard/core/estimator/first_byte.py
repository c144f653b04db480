"""Seconds until the first byte of an answer, learned beside the seconds of the whole answer.

Idea: the first byte of a stream is no fixed share of the whole: a long prompt delays it, a long answer does not. So it
has a base of its own.

Formula: first byte = base(features) × slowness(replica) × slowdown(requests there). The base is constant or additive
over features, learned in blocks from answers that may stream; slowness and slowdown are the estimator's.

Source: docs/decisions/0024-deadlines.md. Limits: assumes that sharing an engine delays the first byte as it delays the
rest.
"""

from __future__ import annotations

from math import exp, log

import numpy as np
from numpy.typing import NDArray

from .regression import AdditiveForm, ConstantForm

BLOCK_ANSWERS = 64
EARLY_BLOCK_ANSWERS = 8
EARLY_ANSWERS = 64  # answers learned from in small blocks, to be of use soon
ANSWERS_BEFORE_SAMPLING = 1024  # answers after which one in EVERY is learned from
SAMPLE_EVERY = 4
DECAY_PER_ANSWER = 0.998  # per answer
ERROR_DECAY_PER_ANSWER = 0.99
REQUIRED_ERROR_RATIO = 0.95  # features must beat the constant's squared error by this
MIN_SECONDS = 1e-6
MAX_FEATURE = 1e12
MIN_FEATURE = 1e-6


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
        """Until the first byte, on a typical replica with nothing beside it; 0.0 while nothing is known."""
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
        """An answer began after `seconds`, in terms of a typical replica with nothing beside it."""
        if self.seen > ANSWERS_BEFORE_SAMPLING:
            self._skipped += 1
            if self._skipped < SAMPLE_EVERY:
                return
            self._skipped = 0
        self._rows.append((features, log(seconds if seconds > MIN_SECONDS else MIN_SECONDS)))
        if len(self._rows) >= self._block:
            self._learn_block()

    def shift(self, ln: float) -> None:
        """Everything is e^ln longer from now on: the typical replica was redefined."""
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
        self._adding = None
        if width:
            usual = np.sort(features, axis=0)[len(features) // 2]
            self._adding = AdditiveForm(np.maximum(np.where(usual > 0.0, usual, features.mean(axis=0)), MIN_FEATURE))
