"""Scaling settings from the configuration, and the scheduled minimum, which alone uses the wall clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...config import AutoscaleConfig, ModelConfig
from ...config.sections.scaling import time_zone
from ...core.request import INFINITY
from ...core.scaling.decider import ScalingOptions
from ...core.scaling.schedule import MINUTES_PER_DAY, make_period, scheduled_minimum

READY_MARGIN_SECONDS = 60.0  # before they are needed


def utc_now() -> datetime:
    return datetime.now(UTC)


class ScheduledMinimum:
    def __init__(self, scale: AutoscaleConfig) -> None:
        self._zone = time_zone(scale.timezone)
        self._periods = tuple(make_period(p.start, p.end, p.min, p.days) for p in scale.schedule)

    def replicas(self, wall: datetime, cold_start: float) -> int:
        """Needed now, or by the time a replica started now is ready. `wall` is zone-aware."""
        if not self._periods:
            return 0
        ahead = timedelta(seconds=cold_start + READY_MARGIN_SECONDS)
        now = scheduled_minimum(self._periods, self._minute(wall), ahead / timedelta(minutes=1))
        # Daylight saving time may begin in between.
        return max(now, scheduled_minimum(self._periods, self._minute(wall + ahead)))

    def _minute(self, wall: datetime) -> float:
        local = wall.astimezone(self._zone)
        return local.weekday() * MINUTES_PER_DAY + local.hour * 60 + local.minute + local.second / 60


DEFAULT_MAX_REPLICAS = 100  # without `max`: a wrong estimate must not start thousands
FIXED, ACT, RECOMMEND = "fixed", "act", "recommend"


def scaling_mode(model: ModelConfig) -> str:
    """Without a runtime, decisions can only be recommended."""
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
        max_added_per_minute=INFINITY if scale.max_added_per_minute is None else scale.max_added_per_minute,
        max_removed_per_minute=INFINITY if scale.max_removed_per_minute is None else scale.max_removed_per_minute,
    )
