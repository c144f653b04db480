"""The autoscaler: hears what is asked of each model, lets core.scaling decide, and tells the keeper."""

from __future__ import annotations

from ...config import Config
from ...link.messages import ReplicaDemand
from ..observability.views import Alarm, ScalingView
from .dependencies import AutoscalerDependencies
from .model_autoscaler import ModelAutoscaler
from .signals import by_model
from .views import scaling_view

__all__ = ["Autoscaler", "AutoscalerDependencies"]

MIN_DECISION_INTERVAL_SECONDS = 0.5  # seconds between two decisions for a model, whoever reports
MAX_DECISION_INTERVAL_SECONDS = 1.0  # and if nobody does


class Autoscaler:
    def __init__(self, deps: AutoscalerDependencies) -> None:
        self._deps = deps
        self._steered: dict[str, ModelAutoscaler] = {}
        self._news = False  # was anything reported that no decision has looked at?

    def config_changed(self, config: Config) -> None:
        """From now on these models: with `autoscale` they are scaled, with a `runtime` alone they have
        `runtime.replicas` (started at once, and kept), others do not concern it."""
        models = {n: m for n, m in config.models.items() if m.autoscale is not None or m.runtime is not None}
        self._steered = {name: steering for name, steering in self._steered.items() if name in models}
        for name, model in models.items():
            if name not in self._steered:
                self._steered[name] = ModelAutoscaler(name, model, self._deps)
            with self._steered[name].alarms.guarded():
                self._steered[name].follow(model)

    def worker_reported(self) -> None:
        """A worker reported: decide for all models, but not more often than twice a second."""
        self._news = True
        self._decide(self._deps.clock(), MIN_DECISION_INTERVAL_SECONDS)

    def model_requested(self, message: ReplicaDemand) -> None:
        """Requests of a worker wait: if the model has no replica and none is coming, decide now."""
        steering = self._steered.get(message.model)
        now = self._deps.clock()
        if steering is not None and steering.wanted(message, now) and not self._deps.ready().get(message.model):
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
        reports, ready = by_model(self._deps.reports()), self._deps.ready()
        for steering in due:
            with steering.alarms.guarded():
                steering.decide(reports.get(steering.name, ()), ready.get(steering.name, 0), now)

    def views(self) -> tuple[ScalingView, ...]:
        now, ready = self._deps.clock(), self._deps.ready()
        return tuple(
            scaling_view(steering, self._deps.keeper, ready.get(name, 0), now)
            for name, steering in self._steered.items()
        )

    def alarms(self) -> list[Alarm]:
        now = self._deps.clock()
        return [alarm for steering in self._steered.values() for alarm in steering.alarms.alarms(now)]
