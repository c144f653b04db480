"""Events in words, for the log and the admin API."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from itertools import islice
from time import monotonic

import msgspec

from .views import FleetEvent

MAX_EVENTS = 1000

log = logging.getLogger("steelyard.fleet")


class EventLog:
    def __init__(self) -> None:
        self._kept: deque[tuple[float, FleetEvent]] = deque(maxlen=MAX_EVENTS)
        self.count = 0  # recorded so far

    def record(
        self, kind: str, what: str, *, model: str = "", replica: str = "", level: int = logging.INFO, code: str = ""
    ) -> None:
        """`code`: of an alarm."""
        where = f"{model}/{replica}: " if replica else f"{model}: " if model else ""
        fields = {"event": kind, "code": code, "model": model, "replica": replica}
        log.log(level, "%s%s", where, what, extra={"fields": {name: of for name, of in fields.items() if of}})
        self.count += 1
        happened = FleetEvent(age=0.0, kind=kind, message=what, model=model, replica=replica, code=code)
        self._kept.append((monotonic(), happened))

    def latest(self) -> list[FleetEvent]:
        """The latest last."""
        return self._aged(self._kept)

    def since(self, count: int) -> list[FleetEvent]:
        """Those recorded after the first `count`, as far as they are kept."""
        new = min(self.count - count, len(self._kept))
        return self._aged(islice(self._kept, len(self._kept) - new, None))

    def recent(self, without: int, most: int = 50) -> list[FleetEvent]:
        """The latest `most`, except the last `without`."""
        end = max(0, len(self._kept) - without)
        return self._aged(islice(self._kept, max(0, end - most), end))

    def _aged(self, kept: Iterable[tuple[float, FleetEvent]]) -> list[FleetEvent]:
        now = monotonic()
        return [msgspec.structs.replace(happened, age=now - when) for when, happened in kept]
