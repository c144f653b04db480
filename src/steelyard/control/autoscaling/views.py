"""One model's scaling, for whoever looks."""

from __future__ import annotations

from ...core.request import INFINITY
from ...core.scalers.base import Recommendation
from ..observability.views import ScalingView
from ..replicas.controller import ReplicaController, ReplicaSetSummary
from .model_autoscaler import ModelAutoscaler
from .settings import scaling_options


def scaling_view(steering: ModelAutoscaler, keeper: ReplicaController, ready: int, now: float) -> ScalingView:
    model, verdict = steering.model, steering.decision
    count = steering.count()
    kept = keeper.summary(steering.name) if model.runtime is not None else ReplicaSetSummary()
    cold_start, measured = steering.cold_start()
    want = verdict.recommendation if verdict is not None else Recommendation(0, "")
    least, most = _bounds(steering)
    return ScalingView(
        model=steering.name,
        mode=steering.mode,
        scaler=model.autoscale.scaler if model.autoscale is not None else "",
        desired=steering.desired,
        min_replicas=least,
        max_replicas=None if most == INFINITY else int(most),
        ready=ready,
        starting=count.starting,
        terminating=count.terminating,
        why=steering.why,
        offered_load=want.offered,
        recent_load=want.recent_work,
        forecast_load=want.forecast,
        burn_rate=want.burn,
        panic_mode=want.panicking,
        cold_start=cold_start,
        cold_start_measured=measured,
        replica_seconds=kept.replica_seconds,
        cost=kept.cost,
        starts=kept.starts,
        stops=kept.stops,
        crashes=kept.crashes,
        instances=kept.instances,
        start_failure=kept.setback,
        steps=steering.history.views(now),
    )


def _bounds(steering: ModelAutoscaler) -> tuple[int, float]:
    """In force, schedules included."""
    if steering.decision is not None:
        return steering.decision.min_replicas, steering.decision.max_replicas
    if steering.model.autoscale is not None:
        scale = scaling_options(steering.model.autoscale)
        return scale.min_replicas, scale.max_replicas
    return steering.desired, steering.desired
