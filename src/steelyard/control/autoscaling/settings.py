"""Schedules: what the time of day says a model needs at the least.

The one place where the wall clock is right: people write peaks by it, and mean it after somebody has set it too.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...config import AutoscaleConfig, ModelConfig
from ...config.sections.scaling import time_zone
from ...core.request import INFINITY
from ...core.scaling.decider import ScalingOptions
from ...core.scaling.schedule import MINUTES_PER_DAY, make_period, scheduled_minimum

READY_MARGIN_SECONDS = 60.0  # seconds by which replicas should be ready before they are needed


def utc_now() -> datetime:
    return datetime.now(UTC)


class ScheduledMinimum:
    """One model's."""

    def __init__(self, scale: AutoscaleConfig) -> None:
        self._zone = time_zone(scale.timezone)
        self._periods = tuple(make_period(p.start, p.end, p.min, p.days) for p in scale.schedule)

    def replicas(self, wall: datetime, cold_start: float) -> int:
        """Replicas that are needed now, or when one that is started now is ready. `wall` knows its zone."""
        if not self._periods:
            return 0
        ahead = timedelta(seconds=cold_start + READY_MARGIN_SECONDS)
        now = scheduled_minimum(self._periods, self._minute(wall), ahead / timedelta(minutes=1))
        # Summer time may begin in between; then the clock shows another time by then than it would have.
        return max(now, scheduled_minimum(self._periods, self._minute(wall + ahead)))

    def _minute(self, wall: datetime) -> float:
        """Of the week, as clocks on the wall there show it."""
        local = wall.astimezone(self._zone)
        return local.weekday() * MINUTES_PER_DAY + local.hour * 60 + local.minute + local.second / 60


# What the configuration says of a model's scaling, for core.scaling.

DEFAULT_MAX_REPLICAS = 100  # replicas, where no max is given: a wild estimate must not start thousands
FIXED, ACT, RECOMMEND = "fixed", "act", "recommend"


def scaling_mode(model: ModelConfig) -> str:
    """Without a runtime nobody can do what is decided."""
    if model.autoscale is None:
        return FIXED
    return ACT if model.runtime is not None and model.autoscale.mode == "act" else RECOMMEND


def scaling_options(scale: AutoscaleConfig) -> ScalingOptions:
    return ScalingOptions(
        scaler=scale.scaler,
        scaler_options=scale.scaler_options,
        min_replicas=scale.min,
        max_replicas=float(max(DEFAULT_MAX_REPLICAS, scale.min) if scale.max is None else scale.max),
        idle_seconds=float(scale.scale_to_zero_after),
        max_added_per_minute=_or_unlimited(scale.max_added_per_minute),
        max_removed_per_minute=_or_unlimited(scale.max_removed_per_minute),
    )


def _or_unlimited(number: int | None) -> float:
    return INFINITY if number is None else float(number)
