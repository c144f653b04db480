"""Schedules: what the time of day says a model needs at the least.

The one place where the wall clock is right: people write peaks by it, and mean it after somebody has set it too.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...config import AutoscaleConfig
from ...config.zones import time_zone
from ...core.schedule import MINUTES_PER_DAY, make_period, scheduled_minimum

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
