"""What is asked of each model, put together from what workers report."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import NamedTuple

from ...link.messages import Apply, ReplicaDemand, WorkerReport
from ..fleet.observer import FleetControl, FleetObserver

RATE_WINDOW_SECONDS = 20.0  # seconds over which the rate of work is taken


class ReportedDemand(NamedTuple):
    """Demand for a model, summed over the workers' reports."""

    waiting: int = 0  # requests in queues
    work: float = 0.0  # seconds of work they are
    oldest: float = 0.0  # seconds for which the first of them has waited; 0: unknown
    rate: float = 0.0  # recent arrivals, in seconds of work per second


class _ModelDemand:
    __slots__ = ("arrived", "rate", "since", "updated")

    def __init__(self, now: float) -> None:
        self.arrived = -1  # requests that came, of all workers, as last reported
        self.rate = 0.0
        self.updated = now
        self.since = -1.0  # when somebody began to wait; -1: nobody does


class DemandTracker(FleetObserver):
    def __init__(self, fleet: FleetControl) -> None:
        self._fleet = fleet
        self._asked: dict[str, _ModelDemand] = {}

    def worker_reported(self, report: WorkerReport, now: float) -> None:
        """A dead worker's counts are missing from the sum: that once, nothing counts as arrived."""
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
        """By model, for models in the latest reports."""
        found: dict[str, ReportedDemand] = {}
        for model, (_, waiting, typical) in _totals_by_model(self._fleet.reports()).items():
            asked = self._asked.get(model)
            oldest = max(0.0, now - asked.since) if asked is not None and asked.since >= 0 else 0.0
            found[model] = ReportedDemand(waiting, waiting * typical, oldest, asked.rate if asked is not None else 0.0)
        return found

    def members_changed(self, active: Apply, now: float) -> None:
        self._asked = {model: asked for model, asked in self._asked.items() if model in active.config.models}


def _totals_by_model(reports: list[WorkerReport]) -> dict[str, tuple[int, int, float]]:
    """Of each model: requests that came so far, requests that wait, seconds of a typical one."""
    found: dict[str, tuple[int, int, float]] = {}
    for report in reports:
        for model in report.models:
            came, waiting, typical = found.get(model.model, (0, 0, 0.0))
            came += sum(model.outcomes.values()) + model.in_flight + model.waiting
            found[model.model] = (came, waiting + model.waiting, max(typical, model.typical))
    return found


# What is wanted of each model: what workers reported, and what they have told since then.

SIGNAL_WINDOW_SECONDS = 0.2  # seconds in which all workers call that have something to call for
SIGNAL_TTL_SECONDS = 1.5  # seconds for which a call of a worker holds: by then there are reports


class _Signal(NamedTuple):
    first: float  # since when there were calls without a gap
    last: float
    told: float  # when the worker called that is believed
    waiting: int
    work: float


class DemandSignals:
    def __init__(self) -> None:
        self._calls: dict[str, _Signal] = {}
        self._served: dict[str, float] = {}  # models that were loaded of late, and when

    def signalled(self, message: ReplicaDemand, now: float) -> None:
        """Who calls is not known, so of several workers the loudest of late is believed until all have reported."""
        known = self._call(message.model, now)
        if known is None:
            known = _Signal(now, now, now, 0, 0.0)
        if message.waiting >= known.waiting or now - known.told > SIGNAL_WINDOW_SECONDS:
            known = known._replace(told=now, waiting=message.waiting, work=message.queued_work)
        self._calls[message.model] = known._replace(last=now)

    def served(self, model: str, now: float) -> None:
        """It is there now: those who waited do so no longer, whatever was reported before."""
        self._calls.pop(model, None)
        self._served[model] = now

    def current(self, now: float, reported: Mapping[str, ReportedDemand]) -> dict[str, ReportedDemand]:
        self._served = {model: when for model, when in self._served.items() if now - when < SIGNAL_TTL_SECONDS}
        found = {
            model: ReportedDemand(rate=wish.rate) if model in self._served else wish for model, wish in reported.items()
        }
        for model in list(self._calls):
            call = self._call(model, now)
            if call is None:
                del self._calls[model]
                continue
            wish = found.get(model, ReportedDemand())
            found[model] = ReportedDemand(
                max(wish.waiting, call.waiting),
                max(wish.work, call.work),
                max(wish.oldest, now - call.first),
                wish.rate,
            )
        return found

    def _call(self, model: str, now: float) -> _Signal | None:
        call = self._calls.get(model)
        return call if call is not None and now - call.last <= SIGNAL_TTL_SECONDS else None
