"""The balancer's ejections, from its reports: recorded, shown, and sent to a balancer that starts again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...core.outliers.ejection_reason import EjectionReason, EjectionRule
from ...core.replica import Event
from ...link.messages import ReplicaEvent, WorkerReport
from .registry import ReplicaKey

SAME_EJECTION_SECONDS = 2.0  # two ejections that end this close together are one; reports are up to 1 s old

UNKNOWN_REASON = EjectionReason(EjectionRule.UNKNOWN)


class ActiveEjection(NamedTuple):
    since: float
    seconds: float  # its whole length
    reason: EjectionReason


class Ejections:
    def __init__(self) -> None:
        self.current: dict[ReplicaKey, ActiveEjection] = {}
        self._ignored_until: dict[ReplicaKey, float] = {}  # until then, reports may be about its predecessor

    def update(
        self, reports: Iterable[WorkerReport], now: float
    ) -> tuple[dict[ReplicaKey, ActiveEjection], dict[ReplicaKey, ActiveEjection]]:
        """What began and what ended since the last reports."""
        self._ignored_until = {key: until for key, until in self._ignored_until.items() if until > now}
        seen = active_ejections(reports, now)
        before = self.current
        self.current = {key: ejected for key, ejected in seen.items() if key not in self._ignored_until}
        current = self.current.items()
        began = {key: now_out for key, now_out in current if key not in before or _is_new(before[key], now_out)}
        ended = {key: ejected for key, ejected in before.items() if key not in self.current or key in began}
        return began, ended

    def active(self, now: float) -> list[ReplicaEvent]:
        """Events for a balancer that starts again."""
        return [
            ReplicaEvent(*key, Event.EJECT.value, left, ejected.reason)
            for key, ejected in self.current.items()
            if (left := ejected.since + ejected.seconds - now) > 0.0
        ]

    def forget(self, key: ReplicaKey, now: float) -> None:
        """The replica is gone or restarted: recent reports are not about the new one."""
        if self.current.pop(key, None) is not None:
            self._ignored_until[key] = now + SAME_EJECTION_SECONDS


def _is_new(before: ActiveEjection, current: ActiveEjection) -> bool:
    """It returned and failed again between two reports."""
    return current.since > before.since + max(SAME_EJECTION_SECONDS, before.seconds - SAME_EJECTION_SECONDS)


def active_ejections(reports: Iterable[WorkerReport], now: float) -> dict[ReplicaKey, ActiveEjection]:
    return {
        (r.model, r.id): ActiveEjection(
            now - r.ejected_since, r.ejected_since + r.ejection_left, r.ejection_reason or UNKNOWN_REASON
        )
        for report in reports
        for r in report.replicas
        if r.ejection_left
    }
