"""Seconds a request will take: base(features) × slowness(replica) × curve(concurrency), all learned online.

A request costs an append; the arithmetic is done for a block of requests at once. Until features have proved better
than a constant, base is the typical time for every request, and whoever uses it behaves as if requests were equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import exp, log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .curve import BatchingCurve
from .first_byte import FirstByte
from .kinds import KindOffsets
from .regression import Adding, Constant, Form, Multiplying
from .remaining import Remaining
from .slowness import Slowness

if TYPE_CHECKING:
    from .replica import Replica
    from .request import Flight, Request

BLOCK = 64
PATIENT = 3  # blocks of another shape before the model starts over
FIRST_BLOCK = 8
EARLY = 64  # requests learned from in small blocks, to be of use soon
FORGET = 0.998  # per request
FORGET_ERROR = 0.99
LEARNED = 1024  # requests after which not every one is worth learning from:
OFTEN = 0.005  # seconds; of one replica, one request in so long is. At thousands a second more would tell nothing new.
ENOUGH = 30  # requests before features are believed
USELESS = 1.2  # sd of the residual above which they are not
BETTER = 0.95  # a form must beat the constant's squared error by this to be used
SETTLED = 256  # requests before the batching curve is learned: the first to finish are the short ones, and few ran then
CROWD = 0.02  # what one more request changes of how many there usually are
ALIKE = 0.2  # ln: two that are no further apart stand for what is typical together
SURE = 30  # requests after which one replica says as much as another of what is typical
QUIET = 0.01  # least residual variance assumed: nobody predicts better than 10 %
BRIEF = 1e-6
HUGE = 1e12  # a larger feature is a mistake
TINY = 1e-6  # a smaller one might as well be zero

# What is kept of a finished request until its block is full: its features and kind, ln of its seconds on a typical
# replica with nothing beside it, its replica's speed, the requests there at dispatch, work observed over predicted, and
# seconds over those on a typical replica with nothing beside it.
Row = tuple[tuple[float, ...], str, float, Slowness, int, float, float]


class Estimator:
    def __init__(self) -> None:
        self.curve = BatchingCurve()
        self.remaining = Remaining()
        self.kinds = KindOffsets()
        self.first_byte = FirstByte()
        self.typical = 1.0  # seconds of a request nothing is known of
        self.noise = 1.0  # variance of ln(observed / predicted)
        self.seen = 0
        self._crowd = 0.0  # ln of how many there usually are where a request runs
        self._usual_weight = 1.0  # the median: weights are relative to it, as speeds are to the median replica
        self.version = 0  # grows with every change of what is believed
        self._constant = Constant()
        self._forms: list[Form] = [self._constant]
        self._form: Form | None = None  # the one in use; None: all requests alike
        self._width = 0
        self._strange = 0  # blocks in a row with hardly any request of the known shape
        self._rows: list[Row] = []
        self._block = FIRST_BLOCK
        self._lowest = self._highest = 0.0  # ln seconds seen: nothing is predicted far outside

    @property
    def features_used(self) -> bool:
        return self._form is not None

    # ------------------------------------------------------------------ per request

    def prepare(self, request: Request) -> None:
        """Set `request.base`, the seconds it should take on a typical replica with nothing beside it."""
        form = self._form
        if form is None or len(request.features) != self._width:
            base = self.typical
        else:
            try:
                ln = form.ln_seconds(request.features)
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

    def in_the_way(self, replica: Replica, now: float) -> float:
        """Seconds by which what is already on a replica delays a newcomer."""
        left = replica.outside * self.typical * replica.slowness
        for oldest in replica.flights:
            # Only the oldest has surely begun; since when, the last finish tells where requests queue in the replica.
            since = oldest.started if oldest.started > replica.last_finish else replica.last_finish
            left += replica.work - oldest.alone + self.remaining.after(now - since, oldest.alone)
            break
        table = self.curve.interference
        n = replica.load + 1
        return left * (table[n] if n < len(table) else table[-1])

    def observe(self, flight: Flight, seconds: float, now: float) -> None:
        """Learn from an attempt that ran to its end and was just given back."""
        request = flight.request
        replica = flight.replica
        speed: Slowness = replica.speed
        if now - speed.stamp < OFTEN and self.seen > LEARNED:
            return
        alone = replica.attained - flight.attained  # what it would have taken with nothing beside it
        curve = self.curve
        crowd = log(seconds / alone) / curve.elasticity if BRIEF < alone < seconds else 0.0
        if flight.cold:
            alone = max(alone - flight.cold, 0.1 * alone)  # the caller told how long warming up takes, more or less
        if alone < BRIEF:
            alone = BRIEF
        if seconds < BRIEF:
            seconds = BRIEF
        ln_alone = log(alone)
        if request.version != self.version:
            # Compare with what is believed now: judged by what was believed long ago, replicas would be blamed for
            # corrections already made to the base, and long requests would make the two chase each other.
            self.prepare(request)
        if self.seen:  # before the first block the base is a guess, and whoever answers first would look odd
            off = crowd - self._crowd
            self._crowd += CROWD * off
            # What ε may be wrong by is no news of a replica that is more crowded than others, or less.
            speed.observe(ln_alone - log(request.base), self.noise, now, curve.leeway * (off if off > 0.0 else -off))
            replica.slowness = speed.value()
        self._rows.append(
            (
                request.features,
                request.kind,
                ln_alone - speed.ln,
                speed,
                flight.concurrency,
                (alone + flight.cold) / flight.alone,
                seconds / (request.base + flight.cold / replica.slowness),
            )
        )
        if request.streams and request.first_byte > flight.started:
            share = alone / seconds if alone < seconds else 1.0  # what those beside it took of its time
            self.first_byte.observe(request.features, (request.first_byte - flight.started) * share / replica.slowness)
        if len(self._rows) >= self._block:
            self._learn_block()

    def admit(self, replica: Replica, now: float) -> None:
        """A replica joins: until observed, its weight against the others' says how fast it is."""
        replica.speed = Slowness(self._usual_weight / replica.weight, now)
        replica.slowness = self._usual_weight / replica.weight

    def reweigh(self, replica: Replica) -> None:
        """Its weight was changed: that is what is expected of it where nothing was observed."""
        speed: Slowness = replica.speed
        speed.expect(log(self._usual_weight / replica.weight))
        replica.slowness = speed.value()

    # ------------------------------------------------------------------ per block

    def _learn_block(self) -> None:
        block, self._rows = self._rows, []
        width = self._width_of(block)
        # NaN, negative and absurd features are not learned from.
        rows = [row for row in block if len(row[0]) == width and all(0.0 <= x <= HUGE for x in row[0])]
        if not rows:
            return
        features = np.array([row[0] for row in rows], dtype=np.float64)
        ln_base = np.array([row[2] for row in rows])
        if features.shape[1] != self._width or not self.seen:
            self._start_over(features)
        self.remaining.observe([row[5] for row in rows])
        if self.seen >= SETTLED and not (self.curve.flat and max(row[4] for row in rows) <= 1):
            self.curve.observe([(row[3], row[4], row[6]) for row in rows])
        if any(row[1] for row in rows):
            names = [row[1] for row in rows]
            ln_base = ln_base - self.kinds.learn(names, ln_base - self._predict(features))
        for form in self._forms:
            if self.seen:
                form.score(features, ln_base, FORGET_ERROR ** len(rows))
            form.learn(features, ln_base, FORGET ** len(rows))
        self.seen += len(rows)
        self._block = BLOCK if self.seen >= EARLY else FIRST_BLOCK
        self._lowest = min(self._lowest, float(ln_base.min()) - 1.0)
        self._highest = max(self._highest, float(ln_base.max()) + 1.0)
        self.typical = exp(self._constant.ln)
        self._elect()
        self.version += 1

    def _width_of(self, block: list[Row]) -> int:
        """How many features count. Requests of another shape are left out, unless they are most for several blocks: a
        mixture must not make the model start over again and again."""
        widths = Counter(len(row[0]) for row in block)
        # Of shapes that are common, the one that tells most.
        most = max((width for width, count in widths.items() if 4 * count >= len(block)), default=max(widths))
        if not self.seen or most == self._width or 8 * widths[self._width] >= len(block):
            self._strange = 0
            return most if not self.seen else self._width
        self._strange += 1
        return most if self._strange >= PATIENT else self._width

    def _start_over(self, features: NDArray[np.float64]) -> None:
        """The first block, or requests of another shape than before."""
        self._width = features.shape[1]
        self._forms = [self._constant]
        self._form = None
        self.seen = 0
        self._lowest, self._highest = float("inf"), float("-inf")
        if self._width:
            # The median, so that one odd request among the first does not set the scale.
            usual = np.sort(features, axis=0)[len(features) // 2]  # np.median would import numpy.ma, here and now
            usual = np.maximum(np.where(usual > 0.0, usual, features.mean(axis=0)), TINY)
            self._forms += [Multiplying(usual), Adding(usual)]

    def _predict(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        return (self._form or self._constant).predict(features)

    def _elect(self) -> None:
        best = min(self._forms, key=lambda form: form.error)
        believed = (
            best is not self._constant
            and self.seen >= ENOUGH
            and best.error < BETTER * self._constant.error
            and best.error < USELESS**2
        )
        self._form = best if believed else None
        self.noise = max(QUIET, best.error if believed else self._constant.error)

    # ------------------------------------------------------------------ per second

    def tick(self, replicas: list[Replica], others: Iterable[Replica] = ()) -> None:
        """Keep the typical replica at 1. `others`: out of rotation; what is known of them stays comparable."""
        if not replicas:
            return
        self._usual_weight = sorted(r.weight for r in replicas)[(len(replicas) - 1) // 2]
        for replica in replicas:
            replica.speed.expect(log(self._usual_weight / replica.weight))
        if not self.seen:
            for replica in replicas:
                replica.slowness = replica.speed.value()
            return
        centre = _centre([r.speed for r in replicas])
        for replica in replicas:
            replica.speed.settle(centre)
            replica.slowness = replica.speed.value()
        for replica in others:
            replica.speed.settle(centre)
            replica.slowness = replica.speed.value()
        self._shift(centre)

    def _shift(self, ln: float) -> None:
        """Every request takes e^ln longer than was thought: what was blamed on replicas is the base's."""
        for form in self._forms:
            form.shift(ln)
        self.first_byte.shift(ln)
        self.typical = exp(self._constant.ln)
        self._lowest += ln
        self._highest += ln
        self.version += 1


def _centre(speeds: list[Slowness]) -> float:
    """The median of ln(slowness), each replica counted by what is known of it; of two in the middle, near the faster.

    Counted alike, the first few answers of some that were cold would stand for what is typical; and of two replicas the
    slower would. Then the other looks fast, gets everything, and nothing ever puts that right: only who looks slow
    against the typical is tried again.
    """
    ordered = sorted((speed.ln, min(speed.seen, SURE)) for speed in speeds)
    left = sum(weight for _, weight in ordered) / 2
    for place, (ln, weight) in enumerate(ordered):
        left -= weight
        if left < 0.0 or place == len(ordered) - 1:
            return ln
        if left == 0.0:
            return ln + min(ordered[place + 1][0] - ln, ALIKE) / 2
    raise AssertionError("at least one replica")
