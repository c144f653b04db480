"""Kubernetes' Horizontal Pod Autoscaler (autoscaling/v2), for comparison.

The formulas are those of kubernetes/kubernetes, pkg/controller/podautoscaler/replica_calculator.go
(`GetResourceReplicas`) and horizontal.go (stabilisation, then the scaling policies), the defaults those of the
controller manager and of `behavior`. Simplified: the metric is the share of slots in use instead of CPU, the same for
all replicas; a replica that is coming is what HPA calls unready, and once ready it is measured at once (HPA ignores its
CPU for some time); from zero it wakes one replica, where HPA itself does nothing.
"""

from __future__ import annotations

from math import ceil

from ..request import INFINITY
from .base import Scaler, Seen, Want
from .options import number
from .windows import Average, Highest

AT_ONCE = 4  # replicas that may be added in a period, …
TIMES = 2.0  # … or as many as make it so many times as many, whichever is more


class KubernetesScaler(Scaler):
    """As many times the replicas as the slots in use are above or below the target; down only after five minutes."""

    rule = "replicas × share of slots in use ÷ 70 %, every 15 s; the highest of the last 300 s on the way down"

    def __init__(
        self,
        *,
        target: float = 0.7,
        tolerance: float = 0.1,
        period: float = 15.0,
        # metrics-server hands out averages over 15 s, up to 15 s old: as old, on average, as one over 30 s.
        window: float = 30.0,
        down_after: float = 300.0,
    ) -> None:
        self.target = number("target", target, above=0.0, most=1.0)
        self.tolerance = number("tolerance", tolerance, least=0.0, most=1.0)
        self.period = number("period", period, above=0.0, most=3600.0)
        self.window = number("window", window, above=0.0, most=3600.0)
        self.down_after = number("down_after", down_after, least=0.0, most=3600.0)
        self._use = Average(self.window)
        self._recommended = Highest(self.down_after)
        self._said: Want | None = None
        self._synced = -INFINITY

    def want(self, seen: Seen) -> Want:
        self._use.add(seen.now, _in_use(seen))
        asleep = seen.ready + seen.coming == 0
        if asleep and seen.running + seen.waiting:
            return self._say(seen.now, 1, "requests wait, and there is no replica")
        if self._said is None:
            self._recommended.add(seen.now, seen.ready + seen.coming)
        if self._said is None or seen.now - self._synced >= self.period:
            return self._decide(seen)
        return self._said

    def _decide(self, seen: Seen) -> Want:
        current = seen.ready + seen.coming
        use = self._use.over(self.window)[0]
        wished = self._wished(seen, use / self.target)
        highest = int(self._recommended.add(seen.now, wished))
        stable = max(wished, min(current, highest))
        limited = min(stable, max(current + AT_ONCE, ceil(TIMES * current)))
        why = f"{use:.0%} of slots in use, {self.target:.0%} is the target"
        if limited < stable:
            why += f", {stable} wanted, but no more are added at once"
        elif stable > wished:
            why += f", fewer only when they were too many for {self.down_after:g} s"
        return self._say(seen.now, limited, why)

    def _wished(self, seen: Seen, ratio: float) -> int:
        """What the replicas are multiplied by; those that are coming count as idle when more are wanted."""
        current = seen.ready + seen.coming
        if not seen.ready:
            return current  # nothing is measured
        if ratio > 1.0 and seen.coming:
            ratio *= seen.ready / current
            if ratio < 1.0 or ratio - 1.0 <= self.tolerance:
                return current
            return max(current, _whole(ratio * current))
        if abs(1.0 - ratio) <= self.tolerance + 1e-9:
            return current
        return _whole(ratio * seen.ready)

    def _say(self, now: float, replicas: int, why: str) -> Want:
        self._synced = now
        self._said = Want(replicas, why)
        return self._said


def _in_use(seen: Seen) -> float:
    """Share of the slots; 0 where there are none."""
    slots = seen.slots if 0 < seen.slots < INFINITY else max(1.0, seen.rate)
    return min(1.0, seen.running / (seen.ready * slots)) if seen.ready else 0.0


def _whole(value: float) -> int:
    return ceil(value - 1e-9)
