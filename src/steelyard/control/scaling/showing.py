"""One model's scaling, for whoever looks."""

from __future__ import annotations

from ...core.request import INFINITY
from ...core.scalers.base import Want
from ..starting.keeper import Keeper, Kept
from ..views import ScalingView
from .options import options
from .steering import Steering


def view(steering: Steering, keeper: Keeper, ready: int, now: float) -> ScalingView:
    model, verdict = steering.model, steering.verdict
    count = steering.count()
    kept = keeper.kept(steering.name) if model.runtime is not None else Kept()
    cold_start, measured = steering.cold_start()
    want = verdict.want if verdict is not None else Want(0, "")
    least, most = _bounds(steering)
    return ScalingView(
        model=steering.name,
        mode=steering.mode,
        scaler=model.autoscale.scaler if model.autoscale is not None else "",
        wanted=steering.number,
        least=least,
        most=None if most == INFINITY else int(most),
        ready=ready,
        starting=count.starting,
        leaving=count.leaving,
        why=steering.why,
        offered=want.offered,
        lately=want.lately,
        forecast=want.forecast,
        burn=want.burn,
        panicking=want.panicking,
        cold_start=cold_start,
        cold_start_measured=measured,
        replica_seconds=kept.replica_seconds,
        cost=kept.cost,
        starts=kept.starts,
        stops=kept.stops,
        crashes=kept.crashes,
        instances=kept.instances,
        setback=kept.setback,
        history=steering.history.views(now),
    )


def _bounds(steering: Steering) -> tuple[int, float]:
    """In force, schedules included."""
    if steering.verdict is not None:
        return steering.verdict.least, steering.verdict.most
    if steering.model.autoscale is not None:
        scale = options(steering.model.autoscale)
        return scale.least, scale.most
    return steering.number, steering.number
