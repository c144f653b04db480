"""Alarms about log lines and spans, while they are being lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from .views import Alarm

CLEAR_AFTER_SECONDS: Final = 60.0  # after the last loss
RECORD_NAMES: Final = {"access_log": "lines of the access log", "decision_log": "lines of the decision log"}


class ActiveLoss(NamedTuple):
    before: int  # lost when it began
    since: float
    seen: float  # when the last one was lost


class LostTelemetry:
    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._losing: dict[str, ActiveLoss] = {}

    def update(self, lost: Mapping[str, int], now: float) -> None:
        """`lost`: so far, by kind."""
        for what, count in lost.items():
            before = self._known.get(what, 0)
            if count > before:
                begun = self._losing.get(what)
                self._losing[what] = begun._replace(seen=now) if begun else ActiveLoss(before, now, now)
            self._known[what] = max(count, before)
        for what in [what for what, losing in self._losing.items() if now - losing.seen >= CLEAR_AFTER_SECONDS]:
            del self._losing[what]

    def alarms(self, now: float) -> list[Alarm]:
        return [
            Alarm(
                code="telemetry_dropped",
                message=_in_words(what, self._known[what] - losing.before),
                age=now - losing.since,
                subject=what,
            )
            for what, losing in sorted(self._losing.items())
        ]


def _in_words(what: str, count: int) -> str:
    reason = "they cannot be sent" if what == "spans" else "its disk is full, or too slow"
    return f"{RECORD_NAMES.get(what, what)} are being lost ({count} so far): {reason}"
