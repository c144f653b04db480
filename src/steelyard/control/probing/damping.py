"""A replica that keeps changing has to be good for longer before it is believed."""

from __future__ import annotations

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
