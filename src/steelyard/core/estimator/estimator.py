"""Seconds a request will take, learned online.

Formula: seconds = base(features, kind) × slowness(replica) × slowdown(concurrency): regression.py, kind_offsets.py,
slowness.py, batching_curve.py.

Idea: a request costs one append; the arithmetic runs for a block at once. Until features prove better than a constant,
base is the typical time of all requests.

Source: docs/decisions/0003-estimator.md. Limits: one base for a pool; features come in the same order; another number
of features starts learning over after a few blocks.
"""

from __future__ import annotations

from array import array
from collections import Counter
from math import exp, log
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.medians import MANY, lower_median
from .batching_curve import BatchingCurve
from .first_byte import FirstByteEstimator
from .kind_offsets import KindOffsets
from .prediction import LinearPrediction
from .regression import AdditiveForm, ConstantForm, MultiplicativeForm, RegressionForm, usual_sizes
from .remaining_time import RemainingTime
from .slowness import SlownessFilter

if TYPE_CHECKING:
    from ..replica import Replica
    from ..request import Attempt, Request
    from ..review import Review, Steps

BLOCK_REQUESTS = 64
CHUNK = 128  # replicas of a large pool looked at in one step of a review
BLOCKS_BEFORE_RESHAPE = 3  # of another number of features
EARLY_BLOCK_REQUESTS = 8
EARLY_REQUESTS = 64  # learned from in small blocks, to be of use soon
DECAY_PER_REQUEST = 0.998
ERROR_DECAY_PER_REQUEST = 0.99
REQUESTS_BEFORE_SAMPLING: Final = 1024  # after which one request per MIN_SAMPLE_GAP_SECONDS and replica is learned from
MIN_SAMPLE_GAP_SECONDS: Final = 0.005
MIN_REQUESTS_FOR_FEATURES = 30
MAX_RESIDUAL_STDEV = 1.2  # above which features are not believed
REQUIRED_ERROR_RATIO = 0.95  # of a form's squared error to the constant's
MIN_REQUESTS_FOR_CURVE = 256  # the first to finish are short, and few ran then
CROWD_LEARNING_RATE: Final = 0.02
MAX_GRADUAL_SHIFT_LN = 0.01  # of what is typical: more is applied to all replicas of a large pool at once
MAX_MEDIAN_GAP_LN = 0.2  # two replicas no further apart are typical together
FULL_WEIGHT_REQUESTS = 30  # after which a replica counts fully in the median
MIN_RESIDUAL_VARIANCE = 0.01  # no prediction is better than 10 %
MIN_SECONDS: Final = 1e-6
MAX_FEATURE = 1e12  # a larger feature is a mistake

# Of a finished request: features, kind, ln of its seconds alone on a typical replica, its replica's filter, requests
# there at dispatch, work observed / predicted, and seconds / those alone on a typical replica.
Row = tuple[tuple[float, ...], str, float, SlownessFilter, int, float, float]


class Estimator:
    def __init__(self) -> None:
        self.curve = BatchingCurve()
        self.remaining = RemainingTime()
        self.kinds = KindOffsets()
        self.first_byte = FirstByteEstimator()
        self.typical_seconds = 1.0  # of a request nothing is known of
        self.noise = 1.0  # variance of ln(observed / predicted)
        self.samples = 0
        self._crowd = 0.0  # ln of how many usually run where a request runs
        self._usual_weight = 1.0  # the median
        self.version = 0  # grows with every change of the estimates
        self._constant = ConstantForm()
        self._forms: list[RegressionForm] = [self._constant]
        self._form: RegressionForm | None = None  # the one in use; None: all requests alike
        self._prediction: LinearPrediction | None = None  # of that form
        self._width = 0
        self._strange = 0  # blocks in a row with hardly any request of the known shape
        self._rows: list[Row] = []
        self._block = EARLY_BLOCK_REQUESTS
        self._lowest = self._highest = 0.0  # ln seconds seen: nothing is predicted far outside

    # ------------------------------------------------------------------ per request

    def prepare(self, request: Request) -> None:
        """Sets `request.base`: its seconds alone on a typical replica."""
        prediction = self._prediction
        if prediction is None or len(request.features) != self._width:
            base = self.typical_seconds
        else:
            try:
                ln = prediction.ln_seconds(request.features)
            except ValueError:  # a negative feature
                ln = self._lowest
            # Written so that NaN, too, ends up inside.
            base = exp(
                ln if self._lowest <= ln <= self._highest else self._highest if ln > self._highest else self._lowest
            )
        if self.kinds.active:
            base *= self.kinds.factor(request.kind)
        request.base = base
        request.version = self.version

    def queueing_delay(self, replica: Replica, now: float) -> float:
        """Seconds by which what is already on a replica delays a newcomer."""
        table = self.curve.interference
        n = replica.load + 1
        return self._work_left(replica, now) * (table[n] if n < len(table) else table[-1])

    def queueing_cost(self, replica: Replica, now: float) -> float:
        """The same, as a choice counts it (least_cost.py)."""
        table = self.curve.choice_interference
        n = replica.load + 1
        return self._work_left(replica, now) * (table[n] if n < len(table) else table[-1])

    def _work_left(self, replica: Replica, now: float) -> float:
        left = replica.other_load * self.typical_seconds * replica.slowness
        oldest = replica.oldest
        if oldest is not None:  # the others may not have begun
            alone = oldest.seconds_alone
            left += replica.outstanding_work - alone + self.remaining.after(now - replica.oldest_since, alone)
        return left

    def observe(self, attempt: Attempt, seconds: float, now: float) -> None:
        """Learn from an attempt that ran to its end and was just given back."""
        request = attempt.request
        replica = attempt.replica
        speed: SlownessFilter = replica.slowness_filter
        if now - speed.updated_at < MIN_SAMPLE_GAP_SECONDS and self.samples > REQUESTS_BEFORE_SAMPLING:
            return
        alone = replica.attained_service - attempt.attained_at_dispatch
        curve = self.curve
        crowd = log(seconds / alone) / curve.elasticity if MIN_SECONDS < alone < seconds else 0.0
        if attempt.cold_seconds:
            alone = max(alone - attempt.cold_seconds, 0.1 * alone)
        if alone < MIN_SECONDS:
            alone = MIN_SECONDS
        if seconds < MIN_SECONDS:
            seconds = MIN_SECONDS
        ln_alone = log(alone)
        if request.version != self.version:
            # By an old base, replicas would be blamed for corrections already made to the base.
            self.prepare(request)
        if self.samples:  # before the first block the base is a guess
            off = crowd - self._crowd
            self._crowd += CROWD_LEARNING_RATE * off
            # What ε may be wrong by says nothing of a replica that is more crowded than others, or less.
            speed.observe(
                ln_alone - log(request.base), self.noise, now, curve.elasticity_margin * (off if off > 0.0 else -off)
            )
            replica.slowness = speed.value()
        self._rows.append(
            (
                request.features,
                request.kind,
                ln_alone - speed.ln,
                speed,
                attempt.concurrency,
                (alone + attempt.cold_seconds) / attempt.seconds_alone,
                seconds / (request.base + attempt.cold_seconds / replica.slowness),
            )
        )
        if request.streams and request.first_byte > attempt.started:
            share = alone / seconds if alone < seconds else 1.0  # what those beside it took of its time
            self.first_byte.observe(request.features, (request.first_byte - attempt.started) * share / replica.slowness)
        if len(self._rows) >= self._block:
            self._learn_block()

    def admit(self, replica: Replica, now: float) -> None:
        """Until observed, a replica's weight against the others' says how fast it is."""
        replica.slowness_filter = SlownessFilter(self._usual_weight / replica.weight, now)
        replica.slowness = self._usual_weight / replica.weight

    def reweigh(self, replica: Replica) -> None:
        speed: SlownessFilter = replica.slowness_filter
        speed.set_prior(log(self._usual_weight / replica.weight))
        replica.slowness = speed.value()

    # ------------------------------------------------------------------ per block

    def _learn_block(self) -> None:
        block, self._rows = self._rows, []
        width = self._width_of(block)
        # NaN, negative and absurd features are not learned from.
        rows = [row for row in block if len(row[0]) == width and all(0.0 <= x <= MAX_FEATURE for x in row[0])]
        if not rows:
            return
        features = np.array([row[0] for row in rows], dtype=np.float64)
        ln_base = np.array([row[2] for row in rows])
        if features.shape[1] != self._width or not self.samples:
            self._start_over(features)
        self.remaining.observe([row[5] for row in rows])
        if self.samples >= MIN_REQUESTS_FOR_CURVE and not (self.curve.flat and max(row[4] for row in rows) <= 1):
            self.curve.observe([(row[3], row[4], row[6]) for row in rows])
        if any(row[1] for row in rows):
            names = [row[1] for row in rows]
            predicted = (self._form or self._constant).predict(features)
            ln_base = ln_base - self.kinds.learn(names, ln_base - predicted)
        for form in self._forms:
            if self.samples:
                form.score(features, ln_base, ERROR_DECAY_PER_REQUEST ** len(rows))
            form.learn(features, ln_base, DECAY_PER_REQUEST ** len(rows))
        self.samples += len(rows)
        self._block = BLOCK_REQUESTS if self.samples >= EARLY_REQUESTS else EARLY_BLOCK_REQUESTS
        self._lowest = min(self._lowest, float(ln_base.min()) - 1.0)
        self._highest = max(self._highest, float(ln_base.max()) + 1.0)
        self.typical_seconds = exp(self._constant.ln)
        self._elect()
        self.version += 1

    def _width_of(self, block: list[Row]) -> int:
        """How many features count. Requests of another shape are left out, unless they prevail for several blocks."""
        widths = Counter(len(row[0]) for row in block)
        # Of shapes that are common, the one that tells most.
        most = max((width for width, count in widths.items() if 4 * count >= len(block)), default=max(widths))
        if not self.samples or most == self._width or 8 * widths[self._width] >= len(block):
            self._strange = 0
            return most if not self.samples else self._width
        self._strange += 1
        return most if self._strange >= BLOCKS_BEFORE_RESHAPE else self._width

    def _start_over(self, features: NDArray[np.float64]) -> None:
        self._width = features.shape[1]
        self._forms = [self._constant]
        self._form = self._prediction = None
        self.samples = 0
        self._lowest, self._highest = float("inf"), float("-inf")
        if self._width:
            usual = usual_sizes(features)
            self._forms += [MultiplicativeForm(usual), AdditiveForm(usual)]

    def _elect(self) -> None:
        best = min(self._forms, key=lambda form: form.error)
        believed = (
            best is not self._constant
            and self.samples >= MIN_REQUESTS_FOR_FEATURES
            and best.error < REQUIRED_ERROR_RATIO * self._constant.error
            and best.error < MAX_RESIDUAL_STDEV**2
        )
        self._form = best if believed else None
        self._prediction = best.prediction if believed else None
        self.noise = max(MIN_RESIDUAL_VARIANCE, best.error if believed else self._constant.error)

    # ------------------------------------------------------------------ per second

    def review(self, review: Review, weights: array[float]) -> Steps:
        """Keeps the typical replica at 1. `weights`: of those in rotation."""
        if not weights:
            return
        self._usual_weight = lower_median(weights)
        known = self.samples > 0
        lns, seen = array("d"), array("d")
        for chunk in review.members(CHUNK):
            for replica in chunk:
                speed: SlownessFilter = replica.slowness_filter
                speed.set_prior(log(self._usual_weight / replica.weight))
                if not known:
                    replica.slowness = speed.value()
                lns.append(speed.ln)
                seen.append(min(speed.seen, FULL_WEIGHT_REQUESTS))
            yield
        if not known or not lns:
            return
        centre = weighted_median(lns, seen)
        yield
        gradually = -MAX_GRADUAL_SHIFT_LN <= centre <= MAX_GRADUAL_SHIFT_LN
        for part in (review.members(CHUNK), review.others(CHUNK)):
            for chunk in part:
                for replica in chunk:
                    replica.slowness_filter.recenter(centre)
                    replica.slowness = replica.slowness_filter.value()
                if gradually:
                    yield
        self._shift(centre)

    def _shift(self, ln: float) -> None:
        """Every request takes e^ln longer than was thought."""
        for form in self._forms:
            form.shift(ln)
        if self._form is not None:
            self._prediction = self._form.prediction
        self.first_byte.shift(ln)
        self.typical_seconds = exp(self._constant.ln)
        self._lowest += ln
        self._highest += ln
        self.version += 1


def weighted_median(lns: array[float], weights: array[float]) -> float:
    """The median of ln(slowness), each replica weighted by what is known of it; of two in the middle, near the faster.

    Were the slower of two typical, the other would look fast and get everything: only what looks slow is explored.
    """
    if len(lns) <= MANY:
        return _weighted_median_of_few(sorted(zip(lns, weights, strict=True)))
    values, shares = np.frombuffer(lns), np.frombuffer(weights)
    last = len(values) - 1
    if shares.min() == shares.max():  # all alike: they need not be sorted
        place = (len(values) + 1) // 2 - 1 if shares[0] else 0
        half_way = not shares[0] or len(values) % 2 == 0
        values = np.partition(values, (place, min(place + 1, last)))
    else:
        order = np.argsort(values)
        values, sums = values[order], np.cumsum(shares[order])
        place = int(np.searchsorted(sums, sums[-1] / 2))
        half_way = bool(sums[place] == sums[-1] / 2)
    ln = float(values[place])
    return ln + min(float(values[place + 1]) - ln, MAX_MEDIAN_GAP_LN) / 2 if half_way and place < last else ln


def _weighted_median_of_few(ordered: list[tuple[float, float]]) -> float:
    left = sum(weight for _, weight in ordered) / 2
    for place, (ln, weight) in enumerate(ordered):
        left -= weight
        if left < 0.0 or place == len(ordered) - 1:
            return ln
        if left == 0.0:
            return ln + min(ordered[place + 1][0] - ln, MAX_MEDIAN_GAP_LN) / 2
    raise AssertionError("at least one replica")
