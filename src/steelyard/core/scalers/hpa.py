"""Kubernetes' Horizontal Pod Autoscaler (autoscaling/v2), for comparison.

Formulas of kubernetes/kubernetes, pkg/controller/podautoscaler/replica_calculator.go (`GetResourceReplicas`) and
horizontal.go (stabilisation, then scaling policies), with the default settings. Simplified: the metric is the share of
slots in use instead of CPU; a new replica is measured as soon as it is ready; from zero it wakes one replica.
"""

from __future__ import annotations

from math import ceil
from typing import ClassVar

from ..request import INFINITY
from ..statistics.sliding_windows import SlidingAverage, SlidingMaximum
from .base import Recommendation, Scaler, ScalingMetrics, number, tolerant_ceil

MAX_ADDED_REPLICAS = 4  # in a period, or MAX_SCALE_UP_FACTOR times as many, whichever is more
MAX_SCALE_UP_FACTOR = 2.0


class KubernetesScaler(Scaler):
    renamed_options: ClassVar[dict[str, str]] = {"down_after": "stabilization_window"}

    rule = "replicas × share of slots in use ÷ 70 %, every 15 s; the highest of the last 300 s on the way down"

    def __init__(
        self,
        *,
        target: float = 0.7,
        tolerance: float = 0.1,
        period: float = 15.0,
        # metrics-server gives averages over 15 s, up to 15 s old: about one over 30 s
        window: float = 30.0,
        stabilization_window: float = 300.0,
    ) -> None:
        self.target = number("target", target, above=0.0, most=1.0)
        self.tolerance = number("tolerance", tolerance, least=0.0, most=1.0)
        self.period = number("period", period, above=0.0, most=3600.0)
        self.window = number("window", window, above=0.0, most=3600.0)
        self.stabilization_window = number("stabilization_window", stabilization_window, least=0.0, most=3600.0)
        self._use = SlidingAverage(self.window)
        self._recommended = SlidingMaximum(self.stabilization_window)
        self._said: Recommendation | None = None
        self._synced = -INFINITY

    def recommend(self, seen: ScalingMetrics) -> Recommendation:
        self._use.add(seen.now, _utilization(seen))
        asleep = seen.ready + seen.starting == 0
        if asleep and seen.running + seen.waiting:
            return self._say(seen.now, 1, "requests wait, and there is no replica")
        if self._said is None:
            self._recommended.add(seen.now, seen.ready + seen.starting)
        if self._said is None or seen.now - self._synced >= self.period:
            return self._decide(seen)
        return self._said

    def _decide(self, seen: ScalingMetrics) -> Recommendation:
        current = seen.ready + seen.starting
        use = self._use.over(self.window)[0]
        wished = self._wished(seen, use / self.target)
        highest = int(self._recommended.add(seen.now, wished))
        stable = max(wished, min(current, highest))
        limited = min(stable, max(current + MAX_ADDED_REPLICAS, ceil(MAX_SCALE_UP_FACTOR * current)))
        reason = f"{use:.0%} of slots in use, {self.target:.0%} is the target"
        if limited < stable:
            reason += f", {stable} wanted, but no more are added at once"
        elif stable > wished:
            reason += f", scaled down only to the highest need of the last {self.stabilization_window:g} s"
        return self._say(seen.now, limited, reason)

    def _wished(self, seen: ScalingMetrics, ratio: float) -> int:
        """Starting replicas count as idle when more are wanted."""
        current = seen.ready + seen.starting
        if not seen.ready:
            return current  # nothing is measured
        if ratio > 1.0 and seen.starting:
            ratio *= seen.ready / current
            if ratio < 1.0 or ratio - 1.0 <= self.tolerance:
                return current
            return max(current, tolerant_ceil(ratio * current))
        if abs(1.0 - ratio) <= self.tolerance + 1e-9:
            return current
        return tolerant_ceil(ratio * seen.ready)

    def _say(self, now: float, replicas: int, reason: str) -> Recommendation:
        self._synced = now
        self._said = Recommendation(replicas, reason)
        return self._said


def _utilization(seen: ScalingMetrics) -> float:
    slots = seen.slots if 0 < seen.slots < INFINITY else max(1.0, seen.rate)
    return min(1.0, seen.running / (seen.ready * slots)) if seen.ready else 0.0
