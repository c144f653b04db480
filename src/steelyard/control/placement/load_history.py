"""Why a load or an unload failed, with a growing delay before the next try, and load times as measured."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from ...core.errors import SteelyardError
from ..backoff import exponential_delay
from ..fleet.registry import ReplicaKey

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0
RISE_WEIGHT, FALL_WEIGHT = 0.7, 0.2  # EWMA weights: an optimistic estimate is worse than a pessimistic one


class PlacementError(SteelyardError):
    reason = "placing"


class NoMemoryError(PlacementError):  # what was free, or freed, is taken again
    reason = "insufficient_memory"


class DrainTimeoutError(PlacementError):  # requests in flight are not cut off
    reason = "drain_timeout"


class UnloadError(PlacementError):
    reason = "unload_failed"


class LoadError(PlacementError):
    reason = "load_failed"


class LoadTimeoutError(PlacementError):
    reason = "load_timeout"


class LoadFailure(NamedTuple):
    times: int  # in a row
    retry_at: float
    at: float
    since: float  # of the first
    reason: str  # of the error
    message: str


class LoadBackoff:
    def __init__(self) -> None:
        self._known: dict[ReplicaKey, LoadFailure] = {}

    def failed(self, key: ReplicaKey, problem: PlacementError, now: float) -> None:
        known = self._known.get(key)
        times, since = (known.times + 1, known.since) if known is not None else (1, now)
        pause = exponential_delay(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, times)
        self._known[key] = LoadFailure(times, now + pause, now, since, problem.reason, str(problem))

    def succeeded(self, key: ReplicaKey) -> None:
        self._known.pop(key, None)

    def may_try(self, key: ReplicaKey, now: float) -> bool:
        known = self._known.get(key)
        return known is None or now >= known.retry_at

    def keep(self, keys: Container[ReplicaKey]) -> None:
        self._known = {key: failure for key, failure in self._known.items() if key in keys}

    def all(self) -> dict[ReplicaKey, LoadFailure]:
        return dict(self._known)


class LoadTimes:
    """Seconds a model takes to load: as configured, until measured."""

    def __init__(self) -> None:
        self._measured: dict[str, float] = {}

    def seconds(self, model: str, configured: float) -> float:
        return self._measured.get(model, configured)

    def is_measured(self, model: str) -> bool:
        return model in self._measured

    def learn(self, model: str, seconds: float) -> None:
        before = self._measured.get(model, seconds)
        self._measured[model] = before + (RISE_WEIGHT if seconds > before else FALL_WEIGHT) * (seconds - before)

    def keep(self, models: set[str]) -> None:
        self._measured = {model: seconds for model, seconds in self._measured.items() if model in models}
