"""Which real requests a replica needs before it is ready, and while it is: its warm-up, and a real inference."""

from __future__ import annotations

from enum import Enum

from ...config import HealthConfig


class RequestCheck(Enum):
    WARM_UP = "warm-up"
    INFERENCE = "inference"


class CheckSchedule:
    """The warm-up comes first: an inference on a cold model may well take longer than it is given."""

    def __init__(self, health: HealthConfig) -> None:
        self.health = health
        self.failing = False  # the last inference failed
        self.failures = 0  # in a row, of either
        self._warm = False
        self._proven: float | None = None  # when an inference last succeeded

    def cool(self) -> None:
        """Another process: it has to be warmed up again."""
        self._warm = False
        self.failures = 0

    def doubt(self) -> None:
        """It is not ready any more: it has to prove itself again."""
        self.failing = False
        self._proven = None

    def pending(self) -> RequestCheck | None:
        """What it has yet to pass before it is ready."""
        if self.health.warm_up and not self._warm:
            return RequestCheck.WARM_UP
        if self.health.inference is not None and self._proven is None:
            return RequestCheck.INFERENCE
        return None

    def due(self, now: float) -> bool:
        """It is ready: is it time for another inference? At once, if the last one failed."""
        wanted = self.health.inference
        return wanted is not None and (self.failing or self._proven is None or now >= self._proven + wanted.every)

    def passed(self, trial: RequestCheck, now: float) -> None:
        self.failures = 0
        if trial is RequestCheck.WARM_UP:
            self._warm = True
        else:
            self.failing = False
            self._proven = now

    def failed(self, trial: RequestCheck) -> None:
        self.failures += 1
        self.failing = trial is RequestCheck.INFERENCE

    def skipped(self, now: float) -> None:
        """Nothing was learned: the next one comes in its turn."""
        self._proven = now
