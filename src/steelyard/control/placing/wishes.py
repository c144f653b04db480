"""What is wanted of each model: what workers reported, and what they have told since then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...link.messages import ReplicaDemand
from .hands import ReportedDemand

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
