"""When to probe a replica next, and how many good probes it needs. Intervals are jittered by a tenth: the probes of a
fleet must not synchronize."""

from __future__ import annotations

from random import Random

from ...config import HealthConfig
from ..backoff import exponential_delay, jittered

UNREACHABLE_GRACE_SECONDS = 60.0  # then it is probed less and less often
SECONDS_PER_ADDED_SECOND = 12.0  # beyond the grace, each adds a second to the interval
STABLE_SECONDS = 60.0
MAX_REQUIRED_SUCCESSES = 32  # unless `rise` is more


class ProbeInterval:
    def __init__(self, health: HealthConfig, rng: Random) -> None:
        self.change(health)
        self._rng = rng

    def change(self, health: HealthConfig) -> None:
        self._interval = float(health.interval)
        self._loading_interval = float(health.loading_interval)

    def ready(self, began: float, now: float) -> float:
        """`interval` after the last probe began, and at least a tenth of it after that ended."""
        return max(began + jittered(self._interval, self._rng), now + 0.1 * self._interval)

    def after_becoming_ready(self, began: float, now: float) -> float:
        """Some time within `interval`: replicas that started together spread out."""
        return max(began + self._rng.uniform(0.2, 1.0) * self._interval, now + 0.1 * self._interval)

    def after_failure(self, began: float, now: float) -> float:
        """`loading_interval` after the bad probe began, or at once if that took longer: a ready replica that hangs is
        detected within `interval` and two timeouts."""
        return max(began + jittered(min(self._interval, self._loading_interval), self._rng), now)

    def loading(self, now: float, failures: int = 0) -> float:
        """`loading_interval`, doubled for each failed check in a row, up to `interval`."""
        longest = max(self._interval, self._loading_interval)
        return now + jittered(exponential_delay(self._loading_interval, longest, max(1, failures)), self._rng)

    def while_unreachable(self, now: float, seconds: float) -> float:
        """`loading_interval` at first; after a minute slower and slower, up to `interval`."""
        pause = min(self._interval, (seconds - UNREACHABLE_GRACE_SECONDS) / SECONDS_PER_ADDED_SECOND)
        return now + jittered(max(pause, self._loading_interval), self._rng)


class FlapDamping:
    """Good probes in a row that a replica needs: failing within a minute of becoming ready doubles them, from `rise` up
    to 32 (16 seconds at two probes a second); each minute ready halves them."""

    def __init__(self, rise: int) -> None:
        self.required_successes = rise
        self._rise = rise
        self._ready_since = self._halved_at = float("-inf")

    def change(self, rise: int) -> None:
        self._rise = rise
        self.required_successes = max(rise, self.required_successes)

    def became_ready(self, now: float) -> None:
        self._ready_since = self._halved_at = now

    def stays_ready(self, now: float) -> None:
        while self.required_successes > self._rise and now - self._halved_at >= STABLE_SECONDS:
            self.required_successes = max(self._rise, self.required_successes // 2)
            self._halved_at += STABLE_SECONDS

    def became_unready(self, now: float) -> None:
        if now - self._ready_since < STABLE_SECONDS:
            self.required_successes = min(self.required_successes * 2, max(MAX_REQUIRED_SUCCESSES, self._rise))
