"""One model's number of replicas: decided periodically, then applied or only recommended, and remembered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from ...config import AutoscaleConfig, ModelConfig
from ...core.request import INFINITY
from ...core.scalers.base import Recommendation, ScalingMetrics
from ...core.scaling.decider import ScalingDecider, ScalingDecision
from ...link.messages import ModelReport, ReplicaDemand
from ..fleet.observer import FleetControl
from ..observability.views import ScalingStepView
from ..replicas.controller import ReplicaController, ReplicaCounts
from .alarms import ScalingAlarms
from .settings import ACT, FIXED, ScheduledMinimum, scaling_mode, scaling_options
from .signals import ScalingSignals, signal_terms


def describe_change(before: int, after: int, reason: str) -> str:
    """In the words of a decision, with the change counted from what is there now."""
    return f"{before} → {after}: {reason.partition(': ')[2]}"


class WindowedMinimum:
    """The lowest recent value: a drop counts at once, a rise once it has lasted."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._kept: deque[tuple[float, int]] = deque()  # increasing values, each with when it was last seen

    def add(self, number: int, now: float) -> int:
        kept = self._kept
        while kept and kept[-1][1] >= number:
            kept.pop()
        kept.append((now, number))
        while kept[0][0] <= now - self._window:
            kept.popleft()
        return kept[0][1]


class ScalingHistory:
    def __init__(self) -> None:
        self._steps: deque[tuple[float, ScalingStepView]] = deque(maxlen=MAX_STEPS)

    def add(self, when: float, step: ScalingStepView) -> None:
        self._steps.append((when, step))

    def views(self, now: float) -> tuple[ScalingStepView, ...]:
        """Oldest first."""
        return tuple(msgspec.structs.replace(step, age=max(0.0, now - when)) for when, step in self._steps)


MAX_STEPS = 200
ADOPTED_KEEP_SECONDS = 60.0  # the least that adopted replicas stay: earlier load is unknown
FIRST_PROBE_SECONDS = 5.0  # until probes have found the ready replicas
EXTERNAL_REPLICA_SECONDS = 30.0  # that an external replica must serve before it replaces one of ours
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
        self.desired = 0  # in all, external ones included
        self.reason = ""
        self.decision: ScalingDecision | None = None
        self.history = ScalingHistory()
        self.alarms = ScalingAlarms(name, fleet)
        self.decided_at = -INFINITY
        self._fleet = fleet
        self._replicas = replicas
        self._utc_now = utc_now
        self._signals = ScalingSignals(signal_terms(model))
        self._scaling: ScalingDecider | None = None  # None: the number stays as it is
        self._plan = ScheduledMinimum(AutoscaleConfig())
        self._others = WindowedMinimum(EXTERNAL_REPLICA_SECONDS)
        self._kept = 0  # adopted replicas that stay at first
        self._began = fleet.now()  # in this mode

    def follow(self, model: ModelConfig) -> None:
        self.model = model
        self._signals.terms = signal_terms(model)
        before, self.mode = self.mode, scaling_mode(model)
        self.decided_at = -INFINITY  # decide soon by the new rules
        if self.mode != before:
            self.decision, self.reason, self.desired = None, "", self._fleet.ready_counts().get(self.name, 0)
            self._began = self._fleet.now()
            self.alarms.clear()
        self._update_scaler()
        if self.mode == ACT != before:
            self._begin_acting()
        elif self.mode != ACT:
            self._apply_configured()

    def _update_scaler(self) -> None:
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

    def _begin_acting(self) -> None:
        """Without history, no running replica can be called surplus."""
        assert self.model.autoscale is not None
        scale, count = scaling_options(self.model.autoscale), self.count()
        others = self._external(self._fleet.ready_counts().get(self.name, 0), count, self._began)
        self._kept = int(min(count.ready + count.starting, scale.max_replicas))
        self.desired = int(min(max(scale.min_replicas, self._floor(others)), scale.max_replicas))
        self.reason = "as many as ran already, or the least"
        self._replicas.scale(self.name, max(0, self.desired - others), self.reason)

    def _external(self, ready: int, count: ReplicaCounts, now: float) -> int:
        """Ready replicas that are not ours; at first, the configured ones are assumed ready."""
        expected = len(self.model.replicas) - sum(count) if now < self._began + FIRST_PROBE_SECONDS else 0
        return max(0, ready - count.ready, expected)

    def _floor(self, others: int) -> int:
        """The least with which adopted replicas stay."""
        return self._kept + others if self._kept else 0

    def _apply_configured(self) -> None:
        if self.model.runtime is not None:
            self._replicas.scale(self.name, self.model.runtime.replicas, AS_CONFIGURED)
            if self.mode == FIXED:
                self.desired, self.reason = self.model.runtime.replicas, AS_CONFIGURED

    def count(self) -> ReplicaCounts:
        return self._replicas.count(self.name) if self.model.runtime is not None else ReplicaCounts()

    def cold_start(self) -> tuple[float, bool]:
        """Seconds, and whether they were measured."""
        if self.model.runtime is not None:
            return self._replicas.cold_start(self.name)
        return (float(self.model.autoscale.cold_start) if self.model.autoscale is not None else 0.0), False

    def wanted(self, message: ReplicaDemand, now: float) -> bool:
        """Requests wait. Returns whether to decide at once: not while a replica starts or is backed off."""
        self._signals.model_requested(message.waiting, message.queued_work, now)
        return self.mode == ACT and not self._replicas.desired(self.name)

    def decide(self, reports: Sequence[ModelReport], ready: int, now: float) -> None:
        """`ready`: those started by others included."""
        self.decided_at = now
        if self.mode != ACT:
            self._apply_configured()
        if self.mode == FIXED:
            self.alarms.clear()
            return
        self._signals.update(reports, now, ready=ready)
        count = self.count()
        others = self._others.add(self._external(ready, count, now), now)
        cold_start = self.cold_start()[0]
        seen = self._signals.snapshot(now, ready=ready, coming=count.starting, cold_start=cold_start)
        self._kept = min(self._kept, count.ready + count.starting)
        decision = self._decision(seen, others)
        if self.mode == ACT:
            self._act(seen, decision, others)
        elif decision is not None:
            self._recommend(seen, decision)
        if decision is not None:
            self.alarms.decided(seen, decision)

    def _decision(self, seen: ScalingMetrics, others: int) -> ScalingDecision | None:
        """None: deciding failed."""
        if self._scaling is None:
            return None
        with self.alarms.guarded():
            planned = self._plan.replicas(self._utc_now(), seen.cold_start)
            kept = self._floor(others) if self.mode == ACT and seen.now < self._began + ADOPTED_KEEP_SECONDS else 0
            self.decision = self._scaling.decide(seen, planned=planned, kept=kept)
            return self.decision
        return None

    def _act(self, seen: ScalingMetrics, decision: ScalingDecision | None, others: int) -> None:
        number, reason = (decision.replicas, decision.reason) if decision is not None else (self.desired, self.reason)
        if not number and seen.waiting:  # waiting requests get a replica whatever the scaler says
            number, reason = 1, "1: requests wait"
        if number != self.desired:
            what = describe_change(self.desired, number, reason)
            self._remember(self.desired, number, what, seen, carried_out=True)
            self._fleet.record("scaling", what, self.name)
        self.desired, self.reason = number, reason
        self._replicas.scale(self.name, max(0, number - others), reason)

    def _recommend(self, seen: ScalingMetrics, decision: ScalingDecision) -> None:
        there, number = seen.ready + seen.starting, decision.replicas
        if not there and seen.now < self._began + FIRST_PROBE_SECONDS:
            return  # replicas are not probed yet
        before = self.desired if self.reason else there
        if number != before:
            what = f"would stay at {there}"
            if number != there:
                what = f"would go {describe_change(there, number, decision.reason)}"
            self._remember(before, number, what, seen, carried_out=False)
            self._fleet.record("scaling", what, self.name)
        self.desired, self.reason = number, decision.reason

    def _remember(self, before: int, number: int, reason: str, seen: ScalingMetrics, *, carried_out: bool) -> None:
        want = self.decision.recommendation if self.decision is not None else Recommendation(0, "")
        step = ScalingStepView(
            age=0.0,
            before=before,
            after=number,
            reason=reason,
            offered_load=want.offered,
            recent_load=want.recent_work,
            forecast_load=want.forecast,
            p99=seen.p99,
            carried_out=carried_out,
        )
        self.history.add(seen.now, step)
