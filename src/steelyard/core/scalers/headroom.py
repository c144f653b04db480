"""Headroom: how many replicas more than the work needs, adapted to how the SLO is kept.

Idea: the square-root staffing factor goes up by HEADROOM_STEP_UP while too many requests are late and replicas are
busy, down by HEADROOM_STEP_DOWN while fewer than half of what is allowed are late. Late requests with nothing waiting
are no lack of replicas.

Formula: too many are late when late − allowed > 2·√(allowed + ¼). Limits: each step is judged by what came since the
one before; down at most every `slowly` seconds, and never below what long cold starts need.
"""

from __future__ import annotations

from math import sqrt

from ..request import INFINITY
from ..statistics.sliding_windows import SlidingAverage, SlidingTotals
from .base import ScalingMetrics

HEADROOM_STEP_UP, HEADROOM_STEP_DOWN = 0.5, 0.25  # of the staffing factor
LOWER_BELOW_BURN_RATE = 0.5
MIN_ALLOWED_LATE = 3.0  # requests, before the SLO counts as kept
HISTORY_WINDOWS = 5.0  # × `slowly`
BUSY_UTILIZATION = 0.7  # above which one more replica would help


class Headroom:
    def __init__(self, spare: float, least: float, most: float, stabilization: float, slowly: float) -> None:
        self.configured, self.least, self.most = spare, least, most
        self.current = spare
        self.burn = 0.0  # burn rate of the SLO over the window
        self.more_replicas_would_not_help = False  # too many are late though nothing waits
        self._stabilization, self._slowly = stabilization, slowly
        self._window = HISTORY_WINDOWS * slowly
        self._counts = SlidingTotals(self._window)
        self._pressure = SlidingAverage(self._window)
        self._since = -INFINITY  # what came before had other replicas, or another headroom
        self._fleet = (-1, -1)

    def observe(self, seen: ScalingMetrics, *, tight: bool) -> None:
        """`tight`: there are no more replicas than this spare asks for."""
        self._counts.add(seen.now, seen.answered, seen.late)
        width = max(1, seen.ready) * max(1.0, seen.rate)
        self._pressure.add(seen.now, seen.waiting, seen.running / width)
        if seen.starting or self._fleet != (seen.ready, seen.starting):
            self._fleet = (seen.ready, seen.starting)
            self._since = seen.now + self._stabilization
        _, (answered, late) = self._counts.over(self._slowly)
        self.burn = late / answered / seen.slo_late_share if answered > 0 and seen.slo_late_share > 0 else 0.0
        self._judge(seen, tight)

    def _judge(self, seen: ScalingMetrics, tight: bool) -> None:
        waiting, use = self._pressure.over(self._window)
        idle = waiting <= 0 and use <= BUSY_UTILIZATION
        _, (answered, late) = self._counts.over(min(self._window, max(0.0, seen.now - self._since)))
        allowed = seen.slo_late_share * answered
        broken = late - allowed > 2.0 * sqrt(allowed + 0.25)
        self.more_replicas_would_not_help = idle and broken
        if broken and not idle:
            self._move(min(self.current + HEADROOM_STEP_UP, self.most), seen.now)
        elif answered and late <= LOWER_BELOW_BURN_RATE * allowed and seen.now - self._since >= self._slowly:
            kept = tight and seen.slo_seconds < INFINITY and allowed >= MIN_ALLOWED_LATE
            lowest = self._lowest(seen) if kept else self.configured
            if self.current > lowest:
                self._move(max(self.current - HEADROOM_STEP_DOWN, lowest), seen.now)

    def _lowest(self, seen: ScalingMetrics) -> float:
        """The longer a start takes, the longer too few stay too few."""
        return self.least + (self.configured - self.least) * min(1.0, 2.0 * seen.cold_start / self._slowly)

    def _move(self, spare: float, now: float) -> None:
        if spare != self.current:
            self.current, self._since = spare, now
