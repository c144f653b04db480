"""Burn-rate alerts: which error budgets burn too fast, and since when."""

from __future__ import annotations

from time import gmtime, strftime
from typing import Final, NamedTuple

from ...core.slo.burn_rate import BURN_RATE_ALERTS, HOUR_SECONDS, Objective, percent_met
from ...core.slo.verdicts import LATENCY, SloTarget
from ...units import format_duration
from ..history.slices import StoredSloTarget
from ..observability.alarm_codes import PAGE
from ..observability.views import Alarm
from .accounting import TenantCounts, TenantKey

CLEAR_AFTER_SECONDS: Final = 60.0  # one alert on the brink, not fifty
DOWNGRADE_AFTER_SECONDS: Final = 300.0  # from page to ticket: the short window of a page
_LONG_WINDOW_SECONDS: Final = {what: long for what, _, long, _ in BURN_RATE_ALERTS}


class ActiveAlert(NamedTuple):
    level: str  # page or ticket
    since: float
    seen: float  # when it last burnt at all …
    worst: float  # … and at this level, or a worse one
    what: str  # without the model's name


class BurnRateAlerts:
    def __init__(self) -> None:
        self.active: dict[tuple[TenantKey, str], ActiveAlert] = {}

    def update(
        self, key: TenantKey, objective: Objective, target: SloTarget, kept: TenantCounts, now: float, wall: float
    ) -> None:
        """Worsens at once, improves after a delay. `wall`: the time of day."""
        level = objective.alert(kept.recent, now)
        place = (key, objective.kind)
        before = self.active.get(place)
        if not level:
            if before is not None and now - before.seen >= CLEAR_AFTER_SECONDS:
                del self.active[place]
            return
        worst = now
        if before is not None and before.level == PAGE != level and now - before.worst < DOWNGRADE_AFTER_SECONDS:
            level, worst = PAGE, before.worst
        what = _describe(key, objective, target, kept, level, now, wall)
        since = before.since if before is not None and before.level == level else now
        self.active[place] = ActiveAlert(level, since, now, worst, what)

    def level(self, key: TenantKey, kind: str) -> str:
        burning = self.active.get((key, kind))
        return burning.level if burning is not None else ""

    def keep(self, places: set[tuple[TenantKey, str]]) -> None:
        """Forgets removed objectives."""
        self.active = {place: burning for place, burning in self.active.items() if place in places}

    def alarms(self, now: float) -> list[Alarm]:
        return [
            Alarm(
                code=f"slo_{burning.level}",
                message=f"{model}: {burning.what}",
                age=now - burning.since,
                model=model,
                subject=f"{kind} {tenant}".strip(),
            )
            for ((model, tenant), kind), burning in self.active.items()
        ]


def _describe(
    key: TenantKey, objective: Objective, target: SloTarget, kept: TenantCounts, level: str, now: float, wall: float
) -> str:
    weighed = kept.recent.sums(_LONG_WINDOW_SECONDS[level], now)
    percent = percent_met(*objective.good_and_bad(weighed)) or 0.0
    how = StoredSloTarget.of(target).limits if objective.kind == LATENCY else "answered"
    tenant = f" for {key[1]}" if key[1] else ""
    over = _over(kept.covered(_LONG_WINDOW_SECONDS[level], now), level, wall)
    return (
        f"{percent:.4g} % {how} {over}{tenant}, target {objective.target:.6g} %: "
        f"the error budget burns {objective.burn_rate(weighed):.1f} × as fast as allowed ({level})"
    )


def _over(covered: float | None, level: str, wall: float) -> str:
    if covered is None:
        return f"over {_LONG_WINDOW_SECONDS[level] / HOUR_SECONDS:.0f} h"
    return f"since {strftime('%H:%M', gmtime(wall - covered))} UTC ({format_duration(covered)})"
