"""Real requests that a replica must pass before and while it is ready: its warm-up, and an inference."""

from __future__ import annotations

from enum import Enum

from ...config import HealthConfig


class RequestCheck(Enum):
    WARM_UP = "warm-up"
    INFERENCE = "inference"


class CheckSchedule:
    """The warm-up goes first: an inference on a cold model may well exceed its time limit."""

    def __init__(self, health: HealthConfig) -> None:
        self.health = health
        self.failing = False  # the last inference failed
        self.failures = 0  # in a row, of either check
        self._warm = False
        self._passed_at: float | None = None  # the last inference that succeeded

    def cool(self) -> None:
        self._warm = False
        self.failures = 0

    def doubt(self) -> None:
        self.failing = False
        self._passed_at = None

    def pending(self) -> RequestCheck | None:
        if self.health.warm_up and not self._warm:
            return RequestCheck.WARM_UP
        if self.health.inference is not None and self._passed_at is None:
            return RequestCheck.INFERENCE
        return None

    def due(self, now: float) -> bool:
        """Whether a ready replica needs another inference; at once if the last failed."""
        probe = self.health.inference
        return probe is not None and (
            self.failing or self._passed_at is None or now >= self._passed_at + probe.interval
        )

    def passed(self, check: RequestCheck, now: float) -> None:
        self.failures = 0
        if check is RequestCheck.WARM_UP:
            self._warm = True
        else:
            self.failing = False
            self._passed_at = now

    def failed(self, check: RequestCheck) -> None:
        self.failures += 1
        self.failing = check is RequestCheck.INFERENCE

    def skipped(self, now: float) -> None:
        """Inconclusive: the next inference comes at its regular time."""
        self._passed_at = now
