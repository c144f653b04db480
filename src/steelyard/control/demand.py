"""What is asked of each model, put together from what workers report."""

from __future__ import annotations

from math import exp

from ..link.messages import Report
from .placing.hands import Wish

WINDOW = 20.0  # seconds over which the rate of work is taken


class _Asked:
    __slots__ = ("arrived", "rate", "since", "updated")

    def __init__(self, now: float) -> None:
        self.arrived = -1  # requests that came, of all workers, as last reported
        self.rate = 0.0
        self.updated = now
        self.since = -1.0  # when somebody began to wait; -1: nobody does


class Demands:
    def __init__(self) -> None:
        self._asked: dict[str, _Asked] = {}

    def take_in(self, reports: list[Report], now: float) -> None:
        """After each report. Of a worker that died, what it counted is missing: then nothing came, for once."""
        for model, (arrived, waiting, typical) in _together(reports).items():
            asked = self._asked.setdefault(model, _Asked(now))
            passed = now - asked.updated
            if passed >= 0.2 or asked.arrived < 0:
                came = max(0, arrived - asked.arrived) if asked.arrived >= 0 else 0
                keep = exp(-passed / WINDOW)
                if passed > 0:
                    asked.rate = keep * asked.rate + (1 - keep) * came * typical / passed
                asked.arrived, asked.updated = arrived, now
            if not waiting:
                asked.since = -1.0
            elif asked.since < 0:
                asked.since = now

    def wanted(self, model: str, now: float) -> None:
        """A worker says that requests wait."""
        asked = self._asked.setdefault(model, _Asked(now))
        if asked.since < 0:
            asked.since = now

    def wishes(self, reports: list[Report], now: float) -> dict[str, Wish]:
        """By model, of those that somebody reported."""
        found: dict[str, Wish] = {}
        for model, (_, waiting, typical) in _together(reports).items():
            asked = self._asked.get(model)
            oldest = max(0.0, now - asked.since) if asked is not None and asked.since >= 0 else 0.0
            found[model] = Wish(waiting, waiting * typical, oldest, asked.rate if asked is not None else 0.0)
        return found

    def keep(self, models: set[str]) -> None:
        self._asked = {model: asked for model, asked in self._asked.items() if model in models}


def _together(reports: list[Report]) -> dict[str, tuple[int, int, float]]:
    """Of each model: requests that came so far, requests that wait, seconds of a typical one."""
    found: dict[str, tuple[int, int, float]] = {}
    for report in reports:
        for model in report.models:
            came, waiting, typical = found.get(model.model, (0, 0, 0.0))
            came += sum(model.verdicts.values()) + model.in_flight + model.waiting
            found[model.model] = (came, waiting + model.waiting, max(typical, model.typical))
    return found
