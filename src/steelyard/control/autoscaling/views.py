"""The view of one model's scaling."""

from __future__ import annotations

from ...core.request import INFINITY
from ...core.scalers.base import Recommendation
from ..observability.views import ScalingView
from ..replicas.controller import ReplicaController, ReplicaSetSummary
from .model_autoscaler import ModelAutoscaler
from .settings import scaling_options


def scaling_view(scaler: ModelAutoscaler, replicas: ReplicaController, ready: int, now: float) -> ScalingView:
    model, decision = scaler.model, scaler.decision
    count = scaler.count()
    kept = replicas.summary(scaler.name) if model.runtime is not None else ReplicaSetSummary()
    cold_start, measured = scaler.cold_start()
    want = decision.recommendation if decision is not None else Recommendation(0, "")
    least, most = _bounds(scaler)
    return ScalingView(
        model=scaler.name,
        mode=scaler.mode,
        scaler=model.autoscale.scaler if model.autoscale is not None else "",
        desired=scaler.desired,
        min_replicas=least,
        max_replicas=None if most == INFINITY else int(most),
        ready=ready,
        starting=count.starting,
        terminating=count.terminating,
        reason=scaler.reason,
        offered_load=want.offered,
        recent_load=want.recent_work,
        forecast_load=want.forecast,
        burn_rate=want.burn,
        panic_mode=want.panicking,
        cold_start=cold_start,
        cold_start_measured=measured,
        steps=scaler.history.views(now),
        **kept._asdict(),
    )


def _bounds(scaler: ModelAutoscaler) -> tuple[int, float]:
    if scaler.decision is not None:
        return scaler.decision.min_replicas, scaler.decision.max_replicas
    if scaler.model.autoscale is not None:
        scale = scaling_options(scaler.model.autoscale)
        return scale.min_replicas, scale.max_replicas
    return scaler.desired, scaler.desired
