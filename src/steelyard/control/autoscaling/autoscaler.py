"""The autoscaler: hears what is asked of each model, lets core.scaling decide, and tells the keeper."""

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

MIN_DECISION_INTERVAL_SECONDS = 0.5  # seconds between two decisions for a model, whoever reports
MAX_DECISION_INTERVAL_SECONDS = 1.0  # and if nobody does


class Autoscaler(FleetObserver):
    def __init__(
        self, fleet: FleetControl, replicas: ReplicaController, utc_now: Callable[[], datetime] = utc_now
    ) -> None:
        """`utc_now`: the wall clock, for schedules and nothing else."""
        self._fleet = fleet
        self._replicas = replicas
        self._utc_now = utc_now
        self._steered: dict[str, ModelAutoscaler] = {}
        self._news = False  # was anything reported that no decision has looked at?

    def config_changed(self, config: Config, now: float) -> None:
        """From now on these models: with `autoscale` they are scaled, with a `runtime` alone they have
        `runtime.replicas` (started at once, and kept), others do not concern it."""
        models = {n: m for n, m in config.models.items() if m.autoscale is not None or m.runtime is not None}
        self._steered = {name: steering for name, steering in self._steered.items() if name in models}
        for name, model in models.items():
            if name not in self._steered:
                self._steered[name] = ModelAutoscaler(name, model, self._fleet, self._replicas, self._utc_now)
            with self._steered[name].alarms.guarded():
                self._steered[name].follow(model)

    def worker_reported(self, report: WorkerReport, now: float) -> None:
        """Decides for all models, at most twice a second."""
        self._news = True
        self._decide(now, MIN_DECISION_INTERVAL_SECONDS)

    def model_requested(self, message: ReplicaDemand, now: float) -> None:
        """If the model has no replica and none is coming, decides now."""
        steering = self._steered.get(message.model)
        if steering is not None and steering.wanted(message, now) and not self._fleet.ready_counts().get(message.model):
            self._decide_for([steering], now)

    def tick(self, now: float) -> None:
        """What time alone brings about; called a few times a second."""
        self._decide(now, MIN_DECISION_INTERVAL_SECONDS if self._news else MAX_DECISION_INTERVAL_SECONDS)

    def _decide(self, now: float, after: float) -> None:
        due = [steering for steering in self._steered.values() if now - steering.decided_at >= after]
        if due:
            self._news = False
            self._decide_for(due, now)

    def _decide_for(self, due: list[ModelAutoscaler], now: float) -> None:
        reports, ready = by_model(self._fleet.reports()), self._fleet.ready_counts()
        for steering in due:
            with steering.alarms.guarded():
                steering.decide(reports.get(steering.name, ()), ready.get(steering.name, 0), now)

    def views(self) -> tuple[ScalingView, ...]:
        now, ready = self._fleet.now(), self._fleet.ready_counts()
        return tuple(
            scaling_view(steering, self._replicas, ready.get(name, 0), now) for name, steering in self._steered.items()
        )

    def alarms(self, now: float) -> list[Alarm]:
        return [alarm for steering in self._steered.values() for alarm in steering.alarms.alarms(now)]
