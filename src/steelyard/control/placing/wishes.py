"""What is wanted of each model: what workers reported, and what they have told since then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...link.messages import Wanted
from .hands import Wish

TOGETHER = 0.2  # seconds in which all workers call that have something to call for
LASTING = 1.5  # seconds for which a call of a worker holds: by then there are reports


class _Call(NamedTuple):
    first: float  # since when there were calls without a gap
    last: float
    told: float  # when the worker called that is believed
    waiting: int
    work: float


class Wishes:
    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._served: dict[str, float] = {}  # models that were loaded of late, and when

    def heard(self, message: Wanted, now: float) -> None:
        """Who calls is not known, so of several workers the loudest of late is believed until all have reported."""
        known = self._call(message.model, now)
        if known is None:
            known = _Call(now, now, now, 0, 0.0)
        if message.waiting >= known.waiting or now - known.told > TOGETHER:
            known = known._replace(told=now, waiting=message.waiting, work=message.work)
        self._calls[message.model] = known._replace(last=now)

    def served(self, model: str, now: float) -> None:
        """It is there now: those who waited do so no longer, whatever was reported before."""
        self._calls.pop(model, None)
        self._served[model] = now

    def at(self, now: float, reported: Mapping[str, Wish]) -> dict[str, Wish]:
        self._served = {model: when for model, when in self._served.items() if now - when < LASTING}
        found = {model: Wish(rate=wish.rate) if model in self._served else wish for model, wish in reported.items()}
        for model in list(self._calls):
            call = self._call(model, now)
            if call is None:
                del self._calls[model]
                continue
            wish = found.get(model, Wish())
            found[model] = Wish(
                max(wish.waiting, call.waiting),
                max(wish.work, call.work),
                max(wish.oldest, now - call.first),
                wish.rate,
            )
        return found

    def _call(self, model: str, now: float) -> _Call | None:
        call = self._calls.get(model)
        return call if call is not None and now - call.last <= LASTING else None
