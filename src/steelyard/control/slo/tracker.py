"""Tracks the SLOs of the fleet: feeds accounting, alerts and history."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import time
from typing import Final

from ...config import Config
from ...core.request import INFINITY
from ...core.slo.burn_rate import (
    ALERT_WINDOWS_SECONDS,
    LONGEST_WINDOW_SECONDS,
    Objective,
    SloCounts,
    objectives,
    percent_met,
)
from ...core.slo.verdicts import LATENCY
from ...link.messages import WorkerReport
from ..fleet.observer import FleetObserver
from ..history.slices import StoredSloTarget, counts_by_verdict, start_of_minute
from ..history.store import HistoryStore
from ..observability.retired_workers import RetiredTotals
from ..observability.telemetry_losses import LostTelemetry
from ..observability.totals import lost_telemetry
from ..observability.views import Alarm, ObjectiveView, SloView, WindowView
from .accounting import SloAccounting, TenantCounts, TenantKey, condense_history, sum_reports
from .alerts import BurnRateAlerts

UPDATE_INTERVAL_SECONDS: Final = 1.0
MAX_RESTORED_AT_ONCE: Final = 500  # parts of the history: a few milliseconds
WRITE_INTERVAL_SECONDS: Final = 10.0  # so much is lost if the supervisor is killed

log = logging.getLogger("steelyard.control")


class SloTracker(FleetObserver):
    def __init__(self, clock: Callable[[], float] = time) -> None:
        """`clock`: seconds since 1970, for the history."""
        self._clock = clock
        self._ledger = SloAccounting()
        self._alerts = BurnRateAlerts()
        self._losses = LostTelemetry()
        self._history: HistoryStore | None = None
        self.restoring: asyncio.Task[None] | None = None
        self._minute = 0  # the current one
        self._looked = -INFINITY
        self._written = -INFINITY

    def config_changed(self, config: Config, now: float) -> None:
        self._turn_page()
        self._ledger.follow(config.models, self._minute)
        targets = {key: self._ledger.target_of(key) for key in self._ledger.tenants}
        self._alerts.keep({(key, o.kind) for key, target in targets.items() for o in objectives(target)})

    def begin(self, history: HistoryStore, now: float) -> None:
        """Restores what the history knows once it has been read."""
        self._history = history
        self.restoring = asyncio.create_task(self._remember(history, now))

    async def _remember(self, history: HistoryStore, now: float) -> None:
        wall = self._clock()
        slos = [model.slo for model in self._ledger.models.values() if model.slo is not None]
        since = wall - max([float(slo.period) for slo in slos], default=0.0)
        try:
            made = partial(condense_history, recent=wall - LONGEST_WINDOW_SECONDS)
            known = await asyncio.to_thread(history.read, since, made) if slos else []
            for at in range(0, len(known), MAX_RESTORED_AT_ONCE):
                self._ledger.restore(known[at : at + MAX_RESTORED_AT_ONCE], now, wall)
                await asyncio.sleep(0)
        except Exception:  # the gateway serves without it
            log.exception("the SLO history could not be read")

    async def end(self, reports: Sequence[WorkerReport], past: RetiredTotals, now: float) -> None:
        """After the last report of all workers."""
        if self.restoring is not None:
            await asyncio.gather(self.restoring, return_exceptions=True)
        self.update(reports, past, now)
        self._write()
        if self._history is not None:
            await asyncio.to_thread(self._history.close)
            self._history = None

    def update_and_store(self, reports: Sequence[WorkerReport], past: RetiredTotals, now: float) -> None:
        if now - self._looked < UPDATE_INTERVAL_SECONDS:
            return
        self._looked = now
        self.update(reports, past, now)
        if now - self._written >= WRITE_INTERVAL_SECONDS:
            self._written = now
            self._write()

    def update(self, reports: Sequence[WorkerReport], past: RetiredTotals, now: float) -> None:
        """Takes the latest report of each worker, and of dead ones."""
        self._turn_page()
        self._losses.update(lost_telemetry(reports, past), now)
        judged, latency = sum_reports([*(report.models for report in reports), past.models.values()])
        changed = self._ledger.update(judged, latency, now)
        burning = {key for key, _ in self._alerts.active}
        for key in (changed | burning) & self._ledger.tenants.keys():
            target = self._ledger.target_of(key)
            for objective in objectives(target):
                self._alerts.update(key, objective, target, self._ledger.tenants[key], now, self._clock())

    def _turn_page(self) -> None:
        """Counts so far belong to the minute before. If the clock is set back, a minute comes again and adds up."""
        now = start_of_minute(self._clock())
        if now != self._minute:
            if self._minute:
                self._write()
            self._minute = now

    def _write(self) -> None:
        """Not before the history was read, or it would return as what came before."""
        if self.restoring is None or self.restoring.done():
            slices = self._ledger.take_slices(self._minute)
            if self._history is not None:
                self._history.add(slices)

    def alarms(self, now: float) -> list[Alarm]:
        return [*self._unwritten(), *self._losses.alarms(now), *self._alerts.alarms(now)]

    def _unwritten(self) -> list[Alarm]:
        history = self._history
        if history is None or not (history.problem or history.behind):
            return []
        if history.problem:
            what = f"{history.problem}: error budgets begin anew at a restart"
        else:
            what = f"{history.behind}; a restart now would forget what is not yet written"
        return [Alarm(code="history_unavailable", message=what, age=0.0)]

    def views(self, now: float) -> tuple[SloView, ...]:
        return tuple(self._view(key, kept, now) for key, kept in self._shown(now).items())

    def _shown(self, now: float) -> Mapping[TenantKey, TenantCounts]:
        """Tenants with requests; without the unnamed one where all requests name theirs."""
        ledger = self._ledger
        several = {model for model, tenant in ledger.tenants if tenant}
        return {
            key: kept
            for key, kept in sorted(ledger.tenants.items())
            if key[1] or key[0] not in several or any(kept.counts) or any(kept.period.sums(kept.period.longest, now))
        }

    def _view(self, key: TenantKey, kept: TenantCounts, now: float) -> SloView:
        found = objectives(self._ledger.target_of(key))
        return SloView(
            model=key[0],
            tenant=key[1],
            counts=counts_by_verdict(kept.counts),
            objectives=tuple(self._objective(key, kept, objective, now) for objective in found),
        )

    def _objective(self, key: TenantKey, kept: TenantCounts, objective: Objective, now: float) -> ObjectiveView:
        target = StoredSloTarget.of(self._ledger.target_of(key))
        timed = objective.kind == LATENCY
        whole = kept.period.sums(kept.period.longest, now)
        return ObjectiveView(
            kind=objective.kind,
            target=objective.target,
            latency=target.latency if timed else None,
            first_byte=target.first_byte if timed else None,
            per_token=target.per_token if timed else None,
            windows=tuple(
                _window(objective, kept.recent.sums(seconds, now), seconds, kept.covered(seconds, now))
                for seconds in ALERT_WINDOWS_SECONDS
            ),
            budget=_window(objective, whole, kept.period.longest, kept.covered(kept.period.longest, now)),
            error_budget_remaining=objective.budget_left(whole),
            alert=self._alerts.level(key, objective.kind),
        )


def _window(objective: Objective, weighed: SloCounts, seconds: float, covered: float | None) -> WindowView:
    good, bad = objective.good_and_bad(weighed)
    return WindowView(
        seconds=seconds,
        good=good,
        bad=bad,
        attainment=percent_met(good, bad),
        burn_rate=round(objective.burn_rate(weighed), 6),
        covered_seconds=covered,
    )
