"""Knative's Pod Autoscaler, for comparison.

Formulas of knative/serving, pkg/autoscaler/scaling/autoscaler.go (`Scale`), with the defaults of its ConfigMap
`config-autoscaler`. Simplified: requests are counted once a decision, not averaged by each pod; no activation scale, no
burst capacity; the grace period at zero is `idle_seconds` of `core.scaling`.
"""

from __future__ import annotations

from math import ceil, floor
from typing import ClassVar

from ..request import INFINITY
from ..statistics.sliding_windows import SlidingAverage, SlidingMaximum
from .base import Recommendation, Scaler, ScalingMetrics, number, tolerant_ceil

TICK_SECONDS = 2.0
DEFAULT_CONCURRENCY_TARGET = 100.0  # container-concurrency-target-default: where a replica takes as many as come


class KnativeScaler(Scaler):
    renamed_options: ClassVar[dict[str, str]] = {
        "up_rate": "max_scale_up_rate",
        "down_rate": "max_scale_down_rate",
        "down_delay": "scale_down_delay",
    }

    rule = "requests at once ÷ 70 % of a replica's slots, over 60 s; over 6 s, and never fewer, in panic"

    def __init__(
        self,
        *,
        target: float = 0.7,
        window: float = 60.0,
        panic_window: float = 6.0,
        panic_threshold: float = 2.0,
        max_scale_up_rate: float = 1000.0,
        max_scale_down_rate: float = 2.0,
        scale_down_delay: float = 0.0,
    ) -> None:
        self.target = number("target", target, above=0.0, most=1.0)
        self.window = number("window", window, least=6.0, most=3600.0)
        self.panic_window = number("panic_window", panic_window, least=1.0, most=self.window)
        self.panic_threshold = number("panic_threshold", panic_threshold, least=1.1, most=10.0)
        self.max_scale_up_rate = number("max_scale_up_rate", max_scale_up_rate, above=1.0)
        self.max_scale_down_rate = number("max_scale_down_rate", max_scale_down_rate, above=1.0)
        self.scale_down_delay = number("scale_down_delay", scale_down_delay, least=0.0, most=3600.0)
        self._stable = SlidingAverage(self.window)
        self._panic = SlidingAverage(self.panic_window)
        self._delayed = SlidingMaximum(self.scale_down_delay)
        self._panicked = -INFINITY  # when it last was over the threshold
        self._most = 0  # in this panic
        self._said: Recommendation | None = None
        self._ticked = -INFINITY

    def recommend(self, seen: ScalingMetrics) -> Recommendation:
        self._stable.add(seen.now, seen.running + seen.waiting)
        self._panic.add(seen.now, seen.running + seen.waiting)
        if self._said is None:
            self._begin(seen)
        poked = seen.waiting > 0 and seen.ready + seen.starting == 0  # the activator does not wait for the next tick
        if self._said is None or poked or seen.now - self._ticked >= TICK_SECONDS:
            self._ticked = seen.now
            self._said = self._decide(seen)
        return self._said

    def _begin(self, seen: ScalingMetrics) -> None:
        """With more than one replica it begins in panic: nothing speaks for fewer yet."""
        if seen.ready > 1:
            self._panicked, self._most = seen.now, seen.ready

    def _decide(self, seen: ScalingMetrics) -> Recommendation:
        target = self.target * (seen.slots if 0 < seen.slots < INFINITY else DEFAULT_CONCURRENCY_TARGET)
        (stable,), (lately,) = self._stable.over(self.window), self._panic.over(self.panic_window)
        ready = max(1, seen.ready)
        most, least = ceil(self.max_scale_up_rate * ready), floor(ready / self.max_scale_down_rate)
        wanted = min(max(tolerant_ceil(stable / target), least), most)
        at_once = min(max(tolerant_ceil(lately / target), least), most)
        if tolerant_ceil(lately / target) / ready >= self.panic_threshold:
            self._panicked = seen.now
        elif self._panicked + self.window < seen.now:
            self._panicked, self._most = -INFINITY, 0
        panicking = self._panicked > -INFINITY
        if panicking:
            self._most = wanted = max(wanted, at_once, self._most)
        held = int(self._delayed.add(seen.now, wanted)) if self.scale_down_delay else wanted
        reason = f"{stable:.1f} requests at once, {lately:.1f} lately, {target:.1f} for each replica"
        return Recommendation(held, f"{reason}, panicking" if panicking else reason, panicking=panicking)
