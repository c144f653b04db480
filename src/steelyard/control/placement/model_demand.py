"""The demand for each model: from the workers' reports, and from their signals between two reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from typing import NamedTuple

from ...link.messages import Apply, ReplicaDemand, WorkerReport
from ..fleet.observer import FleetControl, FleetObserver

RATE_WINDOW_SECONDS = 20.0  # of the decayed mean of the arrival rate


class ReportedDemand(NamedTuple):
    waiting: int = 0  # requests in queues
    work: float = 0.0  # seconds of work they are
    oldest: float = 0.0  # seconds for which the first of them has waited; 0: unknown
    rate: float = 0.0  # recent arrivals, in seconds of work per second


@dataclass(slots=True)
class _ModelDemand:
    updated: float
    arrived: int = -1  # requests of all workers, as last reported
    rate: float = 0.0
    since: float = -1.0  # when requests began to wait; -1: none does


class DemandTracker(FleetObserver):
    def __init__(self, fleet: FleetControl) -> None:
        self._fleet = fleet
        self._asked: dict[str, _ModelDemand] = {}

    def worker_reported(self, report: WorkerReport, now: float) -> None:
        """When a worker died, its counts are missing: that once, nothing counts as arrived."""
        for model, (arrived, waiting, typical) in _totals_by_model(self._fleet.reports()).items():
            asked = self._asked.setdefault(model, _ModelDemand(now))
            passed = now - asked.updated
            if passed >= 0.2 or asked.arrived < 0:
                came = max(0, arrived - asked.arrived) if asked.arrived >= 0 else 0
                keep = exp(-passed / RATE_WINDOW_SECONDS)
                if passed > 0:
                    asked.rate = keep * asked.rate + (1 - keep) * came * typical / passed
                asked.arrived, asked.updated = arrived, now
            if not waiting:
                asked.since = -1.0
            elif asked.since < 0:
                asked.since = now

    def model_requested(self, message: ReplicaDemand, now: float) -> None:
        asked = self._asked.setdefault(message.model, _ModelDemand(now))
        if asked.since < 0:
            asked.since = now

    def current(self, now: float) -> dict[str, ReportedDemand]:
        found: dict[str, ReportedDemand] = {}
        for model, (_, waiting, typical) in _totals_by_model(self._fleet.reports()).items():
            asked = self._asked.get(model)
            oldest = max(0.0, now - asked.since) if asked is not None and asked.since >= 0 else 0.0
            found[model] = ReportedDemand(waiting, waiting * typical, oldest, asked.rate if asked is not None else 0.0)
        return found

    def members_changed(self, active: Apply, now: float) -> None:
        self._asked = {model: asked for model, asked in self._asked.items() if model in active.config.models}


def _totals_by_model(reports: list[WorkerReport]) -> dict[str, tuple[int, int, float]]:
    """By model: requests so far, requests that wait, seconds of a typical one."""
    found: dict[str, tuple[int, int, float]] = {}
    for report in reports:
        for model in report.models:
            came, waiting, typical = found.get(model.model, (0, 0, 0.0))
            came += sum(model.outcomes.values()) + model.in_flight + model.waiting
            found[model.model] = (came, waiting + model.waiting, max(typical, model.typical_seconds))
    return found


SIGNAL_WINDOW_SECONDS = 0.2  # in which all workers with waiting requests signal
SIGNAL_TTL_SECONDS = 1.5  # by then there are reports


class _Signal(NamedTuple):
    first: float  # since when signals came without a gap
    last: float
    sent_at: float  # when the one in use was sent
    waiting: int
    work: float


class DemandSignals:
    """What workers said since their last reports, on top of `DemandTracker`."""

    def __init__(self) -> None:
        self._signals: dict[str, _Signal] = {}
        self._served: dict[str, float] = {}  # when models were loaded, if recently

    def signalled(self, message: ReplicaDemand, now: float) -> None:
        """A signal does not name its worker, so the largest recent one counts until all have reported."""
        known = self._signal(message.model, now)
        if known is None:
            known = _Signal(now, now, now, 0, 0.0)
        if message.waiting >= known.waiting or now - known.sent_at > SIGNAL_WINDOW_SECONDS:
            known = known._replace(sent_at=now, waiting=message.waiting, work=message.queued_work)
        self._signals[message.model] = known._replace(last=now)

    def served(self, model: str, now: float) -> None:
        """The model is ready: earlier signals and reports of waiting requests are outdated."""
        self._signals.pop(model, None)
        self._served[model] = now

    def current(self, now: float, reported: Mapping[str, ReportedDemand]) -> dict[str, ReportedDemand]:
        self._served = {model: when for model, when in self._served.items() if now - when < SIGNAL_TTL_SECONDS}
        found = {
            model: ReportedDemand(rate=demand.rate) if model in self._served else demand
            for model, demand in reported.items()
        }
        for model in list(self._signals):
            call = self._signal(model, now)
            if call is None:
                del self._signals[model]
                continue
            demand = found.get(model, ReportedDemand())
            found[model] = ReportedDemand(
                max(demand.waiting, call.waiting),
                max(demand.work, call.work),
                max(demand.oldest, now - call.first),
                demand.rate,
            )
        return found

    def _signal(self, model: str, now: float) -> _Signal | None:
        call = self._signals.get(model)
        return call if call is not None and now - call.last <= SIGNAL_TTL_SECONDS else None
