"""A run of steps that differ only by their growing contexts: when it ends, and which step a moment falls into.

With n sequences, contexts grow by n tokens a step, so each step takes g = k·n seconds longer than the one before it:
m steps take m·f + g·m·(m − 1)/2, with f the first one's.
"""

from __future__ import annotations

from math import ceil, sqrt


class StepRun:
    __slots__ = ("begun", "first", "growth", "steps")

    def __init__(self) -> None:
        self.steps = 0  # 0: nothing runs
        self.begun = 0.0
        self.first = 0.0  # seconds of the first step
        self.growth = 0.0  # seconds that each further one takes longer

    @property
    def end(self) -> float:
        return self.begun + self._seconds(self.steps)

    def _seconds(self, steps: int) -> float:
        return steps * self.first + self.growth * steps * (steps - 1) / 2

    def done_by(self, now: float) -> int:
        """How many of the steps are over."""
        if not self.steps or now <= self.begun:
            return 0
        steps = self._steps_by(now - self.begun)
        return min(self.steps, steps - (self._seconds(steps) > now - self.begun))

    def end_after_step_at(self, now: float) -> bool:
        """Leaves out the steps that begin after `now`. False: there are none."""
        if self.steps <= 1:
            return False
        steps = self._steps_by(now - self.begun)
        if steps >= self.steps:
            return False
        self.steps = steps
        return True

    def _steps_by(self, seconds: float) -> int:
        """The least number of steps that take so long."""
        if self.growth > 0.0:
            half = self.growth / 2
            linear = self.first - half
            steps = ceil((sqrt(linear * linear + 4 * half * seconds) - linear) / (2 * half))
        else:
            steps = ceil(seconds / self.first)
        steps = max(1, steps)
        while self._seconds(steps) < seconds:  # rounding
            steps += 1
        while steps > 1 and self._seconds(steps - 1) >= seconds:
            steps -= 1
        return steps
