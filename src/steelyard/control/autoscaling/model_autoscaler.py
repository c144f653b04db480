"""One model's number of replicas: decided again and again, told to the keeper or only said, and remembered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

from ...config import AutoscaleConfig, ModelConfig
from ...core.request import INFINITY
from ...core.scalers.base import ScalingMetrics
from ...core.scaling.decider import ScalingDecider, ScalingDecision
from ...link.messages import ModelReport, ReplicaDemand
from ..fleet.observer import FleetControl
from ..replicas.controller import ReplicaController, ReplicaCounts
from .alarms import ScalingAlarms
from .history import ScalingHistory, ScalingStep
from .settings import ACT, FIXED, ScheduledMinimum, scaling_mode, scaling_options
from .signals import ScalingSignals, signal_terms

# Verdicts of core.scaling, said.


def describe_change(before: int, after: int, why: str) -> str:
    """In the words of a verdict, which begin with a change of its own: from what is there just now."""
    return f"{before} → {after}: {why.partition(': ')[2]}"


# The lowest that a number was of late.


class WindowedMinimum:
    """A drop counts at once, a rise only when it has lasted."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._kept: deque[tuple[float, int]] = deque()  # ever larger numbers, each with when it was last seen

    def add(self, number: int, now: float) -> int:
        kept = self._kept
        while kept and kept[-1][1] >= number:
            kept.pop()
        kept.append((now, number))
        while kept[0][0] <= now - self._window:
            kept.popleft()
        return kept[0][1]


ADOPTED_KEEP_SECONDS = (
    60.0  # seconds for which what was found running stays, at the least: nothing is known of the time before
)
FIRST_PROBE_SECONDS = 5.0  # seconds until probes have seen who serves
EXTERNAL_REPLICA_SECONDS = (
    30.0  # seconds for which a replica that is not ours must serve before one of ours goes for it
)
AS_CONFIGURED = "as configured"


class ModelAutoscaler:
    def __init__(
        self,
        name: str,
        model: ModelConfig,
        fleet: FleetControl,
        replicas: ReplicaController,
        utc_now: Callable[[], datetime],
    ) -> None:
        self.name = name
        self.mode = ""  # fixed, act, recommend
        self.desired = 0  # how many there should be, others' included
        self.why = ""
        self.decision: ScalingDecision | None = None  # the last one
        self.history = ScalingHistory()
        self.alarms = ScalingAlarms(name, fleet)
        self.decided_at = -INFINITY  # when
        self._fleet = fleet
        self._replicas = replicas
        self._utc_now = utc_now
        self._signals = ScalingSignals(signal_terms(model))
        self._scaling: ScalingDecider | None = None  # none to be had: the number stays as it is
        self._plan = ScheduledMinimum(AutoscaleConfig())
        self._others = WindowedMinimum(EXTERNAL_REPLICA_SECONDS)
        self._kept = 0  # so many of ours stay at first
        self._began = fleet.now()  # in this mode

    # ------------------------------------------------------------------ the configuration

    def follow(self, model: ModelConfig) -> None:
        self.model = model
        self._signals.terms = signal_terms(model)
        before, self.mode = self.mode, scaling_mode(model)
        self.decided_at = -INFINITY  # by other rules: decide soon
        if self.mode != before:
            self.decision, self.why, self.desired = None, "", self._fleet.ready_counts().get(self.name, 0)
            self._began = self._fleet.now()
            self.alarms.clear()
        self._use()
        if self.mode == ACT != before:
            self._begin()
        elif self.mode != ACT:
            self._stay()

    def _use(self) -> None:
        """Whatever is wrong with a scaler of somebody's own: the number stays, and the one that was in force."""
        scale = self.model.autoscale
        if scale is None:
            self._scaling = None
            return
        with self.alarms.guarded():
            self._plan = ScheduledMinimum(scale)
            if self._scaling is None:
                self._scaling = ScalingDecider(scaling_options(scale))
            else:
                self._scaling.reconfigure(scaling_options(scale))

    def _begin(self) -> None:
        """What runs goes on: of the time before nothing is known, so nobody can say yet that it is too much."""
        assert self.model.autoscale is not None
        scale, count = scaling_options(self.model.autoscale), self.count()
        others = self._not_ours(self._fleet.ready_counts().get(self.name, 0), count, self._began)
        self._kept = int(min(count.ready + count.starting, scale.max_replicas))
        self.desired = int(min(max(scale.min_replicas, self._floor(others)), scale.max_replicas))
        self.why = "as many as ran already, or the least"
        self._replicas.scale(self.name, max(0, self.desired - others), self.why)

    def _not_ours(self, ready: int, count: ReplicaCounts, now: float) -> int:
        """Replicas that serve and were not started here. At first those that are configured are expected to."""
        expected = len(self.model.replicas) - sum(count) if now < self._began + FIRST_PROBE_SECONDS else 0
        return max(0, ready - count.ready, expected)

    def _floor(self, others: int) -> int:
        """How many must be wanted, if of ours those that ran already stay."""
        return self._kept + others if self._kept else 0

    def _stay(self) -> None:
        """As many as the configuration says, where it is not decided here."""
        if self.model.runtime is not None:
            self._replicas.scale(self.name, self.model.runtime.replicas, AS_CONFIGURED)
            if self.mode == FIXED:
                self.desired, self.why = self.model.runtime.replicas, AS_CONFIGURED

    def count(self) -> ReplicaCounts:
        return self._replicas.count(self.name) if self.model.runtime is not None else ReplicaCounts()

    def cold_start(self) -> tuple[float, bool]:
        """Seconds, and whether they were measured."""
        if self.model.runtime is not None:
            return self._replicas.cold_start(self.name)
        return (float(self.model.autoscale.cold_start) if self.model.autoscale is not None else 0.0), False

    # ------------------------------------------------------------------ decisions

    def wanted(self, message: ReplicaDemand, now: float) -> bool:
        """Requests wait. Is it to be decided at once? One that is wanted already is being started, or is backed off."""
        self._signals.model_requested(message.waiting, message.queued_work, now)
        return self.mode == ACT and not self._replicas.desired(self.name)

    def decide(self, reports: Sequence[ModelReport], ready: int, now: float) -> None:
        """`ready`: replicas that serve, whoever started them."""
        self.decided_at = now
        if self.mode != ACT:
            self._stay()
        if self.mode == FIXED:
            self.alarms.clear()
            return
        self._signals.update(reports, now, ready=ready)
        count = self.count()
        others = self._others.add(self._not_ours(ready, count, now), now)
        cold_start = self.cold_start()[0]
        seen = self._signals.snapshot(now, ready=ready, coming=count.starting, cold_start=cold_start)
        self._kept = min(self._kept, count.ready + count.starting)
        verdict = self._verdict(seen, others)
        if self.mode == ACT:
            self._act(seen, verdict, others)
        elif verdict is not None:
            self._recommend(seen, verdict)
        if verdict is not None:
            self.alarms.decided(seen, verdict)

    def _verdict(self, seen: ScalingMetrics, others: int) -> ScalingDecision | None:
        """None: there is none, because deciding fails."""
        if self._scaling is None:
            return None
        with self.alarms.guarded():
            planned = self._plan.replicas(self._utc_now(), seen.cold_start)
            kept = self._floor(others) if self.mode == ACT and seen.now < self._began + ADOPTED_KEEP_SECONDS else 0
            self.decision = self._scaling.decide(seen, planned=planned, kept=kept)
            return self.decision
        return None

    def _act(self, seen: ScalingMetrics, verdict: ScalingDecision | None, others: int) -> None:
        number, why = (verdict.replicas, verdict.reason) if verdict is not None else (self.desired, self.why)
        if not number and seen.waiting:  # whatever a scaler says, or if it cannot: who waits is not left waiting
            number, why = 1, "1: requests wait"
        if number != self.desired:
            what = describe_change(self.desired, number, why)
            self._remember(self.desired, number, what, seen, carried_out=True)
            self._fleet.record("scaling", what, self.name)
        self.desired, self.why = number, why
        self._replicas.scale(self.name, max(0, number - others), why)

    def _recommend(self, seen: ScalingMetrics, verdict: ScalingDecision) -> None:
        there, number = seen.ready + seen.starting, verdict.replicas
        if not there and seen.now < self._began + FIRST_PROBE_SECONDS:
            return  # nobody has looked yet at who serves
        before = self.desired if self.why else there
        if number != before:
            what = (
                f"would go {describe_change(there, number, verdict.reason)}"
                if number != there
                else f"would stay at {there}"
            )
            self._remember(before, number, what, seen, carried_out=False)
            self._fleet.record("scaling", what, self.name)
        self.desired, self.why = number, verdict.reason

    def _remember(self, before: int, number: int, why: str, seen: ScalingMetrics, *, carried_out: bool) -> None:
        want = self.decision.recommendation if self.decision is not None else None
        numbers = (want.offered, want.recent_work, want.forecast) if want is not None else (0.0, 0.0, 0.0)
        self.history.add(ScalingStep(seen.now, before, number, why, *numbers, seen.p99, carried_out))
