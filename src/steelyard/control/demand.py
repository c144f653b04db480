"""What is asked of each model, put together from what workers report."""

from __future__ import annotations

from math import exp

from ..link.messages import WorkerReport
from .placing.hands import ReportedDemand

RATE_WINDOW_SECONDS = 20.0  # seconds over which the rate of work is taken


class _ModelDemand:
    __slots__ = ("arrived", "rate", "since", "updated")

    def __init__(self, now: float) -> None:
        self.arrived = -1  # requests that came, of all workers, as last reported
        self.rate = 0.0
        self.updated = now
        self.since = -1.0  # when somebody began to wait; -1: nobody does


class DemandTracker:
    def __init__(self) -> None:
        self._asked: dict[str, _ModelDemand] = {}

    def update(self, reports: list[WorkerReport], now: float) -> None:
        """After each report. Of a worker that died, what it counted is missing: then nothing came, for once."""
        for model, (arrived, waiting, typical) in _totals_by_model(reports).items():
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

    def requested(self, model: str, now: float) -> None:
        """A worker says that requests wait."""
        asked = self._asked.setdefault(model, _ModelDemand(now))
        if asked.since < 0:
            asked.since = now

    def current(self, reports: list[WorkerReport], now: float) -> dict[str, ReportedDemand]:
        """By model, of those that somebody reported."""
        found: dict[str, ReportedDemand] = {}
        for model, (_, waiting, typical) in _totals_by_model(reports).items():
            asked = self._asked.get(model)
            oldest = max(0.0, now - asked.since) if asked is not None and asked.since >= 0 else 0.0
            found[model] = ReportedDemand(waiting, waiting * typical, oldest, asked.rate if asked is not None else 0.0)
        return found

    def prune(self, models: set[str]) -> None:
        self._asked = {model: asked for model, asked in self._asked.items() if model in models}


def _totals_by_model(reports: list[WorkerReport]) -> dict[str, tuple[int, int, float]]:
    """Of each model: requests that came so far, requests that wait, seconds of a typical one."""
    found: dict[str, tuple[int, int, float]] = {}
    for report in reports:
        for model in report.models:
            came, waiting, typical = found.get(model.model, (0, 0, 0.0))
            came += sum(model.outcomes.values()) + model.in_flight + model.waiting
            found[model.model] = (came, waiting + model.waiting, max(typical, model.typical))
    return found
