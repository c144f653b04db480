"""When to look at a replica next. Every time is jittered by a tenth, so that a fleet's probes do not march in step."""

from __future__ import annotations

from random import Random

from ...config import HealthConfig
from ..backoff import exponential_delay

JITTER_RATIO = 0.1
UNREACHABLE_GRACE_SECONDS = 60.0  # seconds unreachable, after which it is looked for less and less often
SECONDS_PER_ADDED_SECOND = 12.0  # each so many seconds more add one to the pause


class ProbeInterval:
    def __init__(self, health: HealthConfig, rng: Random) -> None:
        self.change(health)
        self._rng = rng

    def change(self, health: HealthConfig) -> None:
        self._interval = float(health.interval)
        self._loading = float(health.loading_interval)

    def ready(self, began: float, now: float) -> float:
        """`interval` after the last look began; at least a tenth of it after it ended, however long it took."""
        return max(began + self._jittered(self._interval), now + 0.1 * self._interval)

    def after_becoming_ready(self, began: float, now: float) -> float:
        """It just became ready: some time within `interval`, so that those who started together part ways."""
        return max(began + self._rng.uniform(0.2, 1.0) * self._interval, now + 0.1 * self._interval)

    def after_failure(self, began: float, now: float) -> float:
        """It was ready, and the last look was bad: at once, or `loading_interval` after that look began.

        Silence has taken its time already, so two silent looks take `interval` and two timeouts to be found out.
        """
        return max(began + self._jittered(min(self._interval, self._loading)), now)

    def loading(self, now: float, failures: int = 0) -> float:
        """`loading_interval`; twice as long for each warm-up or inference in a row that failed, up to `interval`."""
        longest = max(self._interval, self._loading)
        return now + self._jittered(exponential_delay(self._loading, longest, max(1, failures)))

    def while_unreachable(self, now: float, seconds: float) -> float:
        """`loading_interval` too; when it has been unreachable for more than a minute, slower, up to `interval`."""
        pause = min(self._interval, (seconds - UNREACHABLE_GRACE_SECONDS) / SECONDS_PER_ADDED_SECOND)
        return now + self._jittered(max(pause, self._loading))

    def _jittered(self, seconds: float) -> float:
        return seconds * self._rng.uniform(1.0 - JITTER_RATIO, 1.0 + JITTER_RATIO)


# A replica that keeps changing has to be good for longer before it is believed.

STABLE_SECONDS = 60.0  # seconds: who falls sooner after it became ready is damped; who stays so long is forgiven a step
MAX_REQUIRED_SUCCESSES = 32  # good probes in a row are asked for at most, unless `rise` is more


class FlapDamping:
    """`needed` good probes in a row make a replica ready: `rise` of them at first.

    Each fall within a minute of becoming ready doubles it, up to 32; each minute that it stays ready halves it, down
    to `rise`. At the default of two probes a second, 32 good ones are 16 seconds: what is up and down every second,
    or every ten, stays out for as long as it goes on.
    """

    def __init__(self, rise: int) -> None:
        self.required_successes = rise
        self._rise = rise
        self._since = self._forgiven = float("-inf")

    def change(self, rise: int) -> None:
        self._rise = rise
        self.required_successes = max(rise, self.required_successes)

    def became_ready(self, now: float) -> None:
        self._since = self._forgiven = now

    def stays(self, now: float) -> None:
        """Still ready."""
        while self.required_successes > self._rise and now - self._forgiven >= STABLE_SECONDS:
            self.required_successes = max(self._rise, self.required_successes // 2)
            self._forgiven += STABLE_SECONDS

    def became_unready(self, now: float) -> None:
        if now - self._since < STABLE_SECONDS:
            self.required_successes = min(self.required_successes * 2, max(MAX_REQUIRED_SUCCESSES, self._rise))
