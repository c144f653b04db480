"""Alarms of a model's scaling: it needs more than `max`, or deciding fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ...core.scalers.base import ScalingMetrics
from ...core.scaling.decider import ScalingDecision
from ..fleet.observer import FleetControl
from ..observability.views import Alarm

MAX_REACHED_ALARM_SECONDS = 60.0  # above `max` before the alarm


class ScalingAlarms:
    def __init__(self, model: str, fleet: FleetControl) -> None:
        self._model = model
        self._fleet = fleet
        self._short: tuple[float, str] | None = None  # since when it needs more than `max`, in words
        self._suffers = False  # the SLO is violated, or requests wait
        self._failing: tuple[float, str] | None = None  # since when, and how

    def decided(self, seen: ScalingMetrics, decision: ScalingDecision) -> None:
        self._failing = None
        want, most = decision.recommendation, decision.max_replicas
        self._suffers = want.burn > 1.0 or seen.waiting > 0
        if want.replicas <= most:
            self._short = None
            return
        what = f"{self._model} needs {want.replicas} replicas, max is {most:.0f}: {want.reason}"
        self._short = (self._short[0] if self._short is not None else seen.now, what)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """An exception, of a user's own scaler say, leaves the number and other models alone."""
        try:
            yield
        except Exception as problem:
            before, how = self._failing, f"{type(problem).__name__}: {problem}"
            self._failing = (self._fleet.now() if before is None else before[0], how)
            self._short = None
            if before is None or before[1] != how:
                what = f"deciding how many replicas fails: {how}"
                self._fleet.record("scaling", what, self._model, level=logging.ERROR)

    def clear(self) -> None:
        self._short = self._failing = None

    def alarms(self, now: float) -> Iterator[Alarm]:
        if self._failing is not None:
            since, how = self._failing
            what = f"{self._model} is not scaled: {how}"
            yield Alarm(code="scaling_failed", message=what, age=now - since, model=self._model)
        if self._short is not None and self._suffers and now - self._short[0] >= MAX_REACHED_ALARM_SECONDS:
            yield Alarm(code="max_reached", message=self._short[1], age=now - self._short[0], model=self._model)
