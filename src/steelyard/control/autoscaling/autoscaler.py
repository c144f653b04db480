"""Decides how many replicas each model has: signals in, `core.scaling` decides, `ReplicaController` acts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ...config import Config
from ...link.messages import ReplicaDemand, WorkerReport
from ..fleet.observer import FleetControl, FleetObserver
from ..observability.views import Alarm, ScalingView
from ..replicas.controller import ReplicaController
from .model_autoscaler import ModelAutoscaler
from .settings import utc_now
from .signals import by_model
from .views import scaling_view

MIN_DECISION_INTERVAL_SECONDS = 0.5  # per model, however often workers report
MAX_DECISION_INTERVAL_SECONDS = 1.0  # without any report


class Autoscaler(FleetObserver):
    def __init__(
        self, fleet: FleetControl, replicas: ReplicaController, utc_now: Callable[[], datetime] = utc_now
    ) -> None:
        """`utc_now`: the wall clock, for schedules and nothing else."""
        self._fleet = fleet
        self._replicas = replicas
        self._utc_now = utc_now
        self._models: dict[str, ModelAutoscaler] = {}
        self._news = False  # a report no decision has used yet

    def config_changed(self, config: Config, now: float) -> None:
        """Models with `autoscale` are scaled; those with a `runtime` alone keep `runtime.replicas`."""
        models = {n: m for n, m in config.models.items() if m.autoscale is not None or m.runtime is not None}
        self._models = {name: scaler for name, scaler in self._models.items() if name in models}
        for name, model in models.items():
            if name not in self._models:
                self._models[name] = ModelAutoscaler(name, model, self._fleet, self._replicas, self._utc_now)
            with self._models[name].alarms.guarded():
                self._models[name].follow(model)

    def worker_reported(self, report: WorkerReport, now: float) -> None:
        self._news = True
        self._decide(now, MIN_DECISION_INTERVAL_SECONDS)

    def model_requested(self, message: ReplicaDemand, now: float) -> None:
        """If the model has no replica and none is coming, decides now."""
        scaler = self._models.get(message.model)
        if scaler is not None and scaler.wanted(message, now) and not self._fleet.ready_counts().get(message.model):
            self._decide_for([scaler], now)

    def tick(self, now: float) -> None:
        self._decide(now, MIN_DECISION_INTERVAL_SECONDS if self._news else MAX_DECISION_INTERVAL_SECONDS)

    def _decide(self, now: float, after: float) -> None:
        due = [scaler for scaler in self._models.values() if now - scaler.decided_at >= after]
        if due:
            self._news = False
            self._decide_for(due, now)

    def _decide_for(self, due: list[ModelAutoscaler], now: float) -> None:
        reports, ready = by_model(self._fleet.reports()), self._fleet.ready_counts()
        for scaler in due:
            with scaler.alarms.guarded():
                scaler.decide(reports.get(scaler.name, ()), ready.get(scaler.name, 0), now)

    def views(self) -> tuple[ScalingView, ...]:
        now, ready = self._fleet.now(), self._fleet.ready_counts()
        return tuple(
            scaling_view(scaler, self._replicas, ready.get(name, 0), now) for name, scaler in self._models.items()
        )

    def alarms(self, now: float) -> list[Alarm]:
        return [alarm for scaler in self._models.values() for alarm in scaler.alarms.alarms(now)]
