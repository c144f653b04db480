"""An autoscaler among stand-ins: a controller that only remembers, and a clock that is turned by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from steelyard.config import Config, parse_config
from steelyard.control.autoscaling.autoscaler import Autoscaler
from steelyard.control.replicas.controller import ReplicaCounts, ReplicaSetSummary
from steelyard.core.scalers.base import Recommendation, Scaler, ScalingMetrics
from steelyard.link.messages import ModelReport, ReplicaDemand, WorkerReport
from tests.control.autoscaling.reporting import of_worker
from tests.control.fake_fleet import FakeFleet

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)  # a Monday
RUNTIME = "runtime: {command: 'serve {port}'}"
FIXED_SCALER = "tests.control.autoscaling.stage:FixedScaler"


class FixedScaler(Scaler):
    """Wants what a test says."""

    number = 1
    burn = 0.0
    problem: Exception | None = None

    def recommend(self, seen: ScalingMetrics) -> Recommendation:
        if FixedScaler.problem is not None:
            raise FixedScaler.problem
        return Recommendation(FixedScaler.number, "so it was told", 4.0, 5.0, 6.0, FixedScaler.burn, False)


class FakeReplicaController:
    """Starts and stops at once; what it starts is ready when the test says so."""

    def __init__(self) -> None:
        self.counts: dict[str, ReplicaCounts] = {}
        self.wants: dict[str, int] = {}
        self.calls: list[tuple[str, int, str]] = []  # those that changed something
        self.problem: Exception | None = None

    def scale(self, model: str, replicas: int, reason: str) -> None:
        if self.problem is not None:
            raise self.problem
        assert replicas >= 0
        if self.wants.get(model) == replicas:
            return
        self.wants[model] = replicas
        self.calls.append((model, replicas, reason))
        ready = min(self.count(model).ready, replicas)
        self.counts[model] = ReplicaCounts(ready, replicas - ready)

    def desired(self, model: str) -> int:
        return self.wants.get(model, 0)

    def count(self, model: str) -> ReplicaCounts:
        return self.counts.get(model, ReplicaCounts())

    def cold_start(self, model: str) -> tuple[float, bool]:
        return 3.0, True

    def summary(self, model: str) -> ReplicaSetSummary:
        return ReplicaSetSummary((), None, 100.0, 2.5, 3, 1, 1)

    def all_ready(self) -> None:
        self.counts = {m: ReplicaCounts(c.ready + c.starting) for m, c in self.counts.items()}


class Stage:
    def __init__(self, **models: str) -> None:
        """What each model says, in YAML."""
        FixedScaler.number, FixedScaler.burn, FixedScaler.problem = 1, 0.0, None
        self.now = 1000.0
        self.controller = FakeReplicaController()
        self.others: dict[str, int] = {}  # replicas that serve and that the controller did not start
        self.reports: dict[str, list[ModelReport]] = {}
        self.config = configured(**models)
        self.fleet = FakeFleet(lambda: self.now)
        self.fleet.reports = lambda: [of_worker(*each) for each in zip(*self.reports.values(), strict=True)]
        self.fleet.ready_counts = self.ready
        self.scaler = Autoscaler(
            self.fleet,
            self.controller,
            lambda: NOON + timedelta(seconds=self.now - 1000.0),
        )

    @property
    def notes(self) -> list[tuple[str, str, int]]:
        return [(note.what, note.model, note.level) for note in self.fleet.notes]

    def reported(self) -> None:
        """A worker did."""
        self.scaler.worker_reported(WorkerReport(0, (), ()), self.now)

    def begin(self) -> Stage:
        self.scaler.config_changed(self.config, self.now)
        return self

    def follow(self, **models: str) -> None:
        self.config = configured(**models)
        self.scaler.config_changed(self.config, self.now)

    def ready(self) -> dict[str, int]:
        models = {*self.controller.counts, *self.others}
        return {model: self.controller.count(model).ready + self.others.get(model, 0) for model in models}

    def words(self, model: str = "m") -> list[str]:
        return [what for what, name, _ in self.notes if name == model]

    def want(self, model: str = "m") -> int | None:
        return self.controller.wants.get(model)

    def turn(self, seconds: float = 1.0) -> None:
        """Time passes, and the autoscaler is called a few times a second, as in the fleet."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 0.25)
            self.scaler.tick(self.now)

    def say(self, number: int, seconds: float = 1.0) -> None:
        FixedScaler.number = number
        self.turn(seconds)

    def asks(self, waiting: int = 1, model: str = "m") -> None:
        self.scaler.model_requested(ReplicaDemand(model, waiting, 0.1 * waiting), self.now)

    def view(self, model: str = "m") -> Any:
        return next(view for view in self.scaler.views() if view.model == model)

    def alarms(self) -> list[str]:
        return [alarm.code for alarm in self.scaler.alarms(self.now)]


def configured(**models: str) -> Config:
    lines = "".join(f"  {name}: {{{what}}}\n" for name, what in models.items())
    return parse_config(f"models:\n{lines}") if models else Config(models={})


def scaled(more: str = "", runtime: str = RUNTIME) -> str:
    """A model whose scaler is told what to want."""
    return ", ".join(filter(None, [runtime, f"autoscale: {{scaler: '{FIXED_SCALER}'{', ' if more else ''}{more}}}"]))
