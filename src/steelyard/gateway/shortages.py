"""What a worker lacks of this machine (file descriptors, memory): one alarm while it does, not one for each request."""

from __future__ import annotations

from typing import Final

from ..core.request import INFINITY
from ..link.messages import WorkerAlarm

ALARM_HOLD_SECONDS: Final = 10.0  # seconds after it was last felt: what comes and goes is one alarm


class ResourceAlarm:
    def __init__(self, code: str) -> None:
        self.code = code
        self._since = 0.0
        self._last = -INFINITY
        self._what = ""

    def trigger(self, what: str, now: float) -> None:
        if not self.is_active(now):
            self._since = now
        self._last = now
        self._what = what

    def is_active(self, now: float) -> bool:
        return now - self._last < ALARM_HOLD_SECONDS

    def alarm(self, now: float) -> WorkerAlarm | None:
        return WorkerAlarm(self.code, self._what, now - self._since) if self.is_active(now) else None
