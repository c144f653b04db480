"""Ejections found by one worker, propagated to all and shown to operators; failures summed over workers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...config import ModelConfig
from ...core.outliers.ejection_reason import EjectionReason, EjectionRule
from ...core.replica import Event, State
from ...link.messages import ReplicaEvent, ReplicaReport, WorkerReport
from .registry import ReplicaKey

SAME_EJECTION_SECONDS = 2.0  # two ejections that end this close together are one; reports are up to 1 s old
UNKNOWN_REASON = EjectionReason(EjectionRule.REPORTED_BY_PEER)


class ActiveEjection(NamedTuple):
    since: float
    seconds: float  # its whole length
    reason: EjectionReason


class Ejections:
    def __init__(self) -> None:
        self.current: dict[ReplicaKey, ActiveEjection] = {}
        self.until: dict[ReplicaKey, float] = {}
        self._workers: dict[ReplicaKey, int] = {}  # the most workers that reported it as ejected
        self._ignored_until: dict[ReplicaKey, float] = {}  # until then, reports may be about its predecessor

    def propagate(
        self, reports: Iterable[WorkerReport], models: Mapping[str, ModelConfig], now: float
    ) -> list[ReplicaEvent]:
        """Events for all workers, from the latest reports of each."""
        self.until = {key: until for key, until in self.until.items() if until > now - SAME_EJECTION_SECONDS}
        self._ignored_until = {key: until for key, until in self._ignored_until.items() if until > now}
        seen: dict[ReplicaKey, list[ReplicaReport]] = {}
        for report in reports:
            for replica in report.replicas:
                key = (replica.model, replica.id)
                if (replica.consecutive_failures or replica.ejection_left) and key not in self._ignored_until:
                    seen.setdefault(key, []).append(replica)
        found = self._restored_early(seen, now)
        for key, views in seen.items():
            model = models.get(key[0])
            if key in self._ignored_until or model is None or not model.outlier_detection.enabled:
                continue
            if seconds := self._ejection_seconds(key, views, model, now):
                self.until[key] = now + seconds
                self._workers[key] = 0
                found.append(ReplicaEvent(*key, Event.EJECT.value, seconds, _merged_reason(views)))
        return found

    def _restored_early(self, seen: Mapping[ReplicaKey, list[ReplicaReport]], now: float) -> list[ReplicaEvent]:
        """In a panic, a good answer at one worker ends the ejection for all."""
        found = []
        for key, until in list(self.until.items()):
            out = sum(view.ejection_left > 0.0 for view in seen.get(key, ()))
            if out < self._workers.get(key, 0) and until > now + SAME_EJECTION_SECONDS:
                self.forget(key, now)
                found.append(ReplicaEvent(*key, Event.RESTORE.value))
            else:
                self._workers[key] = max(out, self._workers.get(key, 0))
        self._workers = {key: count for key, count in self._workers.items() if key in self.until}
        return found

    def update(
        self, reports: Iterable[WorkerReport], now: float
    ) -> tuple[dict[ReplicaKey, ActiveEjection], dict[ReplicaKey, ActiveEjection]]:
        before, self.current = self.current, active_ejections(reports, now)
        current = self.current.items()
        began = {key: now_out for key, now_out in current if key not in before or _is_new(before[key], now_out)}
        ended = {key: ejected for key, ejected in before.items() if key not in self.current or key in began}
        return began, ended

    def _ejection_seconds(self, key: ReplicaKey, views: list[ReplicaReport], model: ModelConfig, now: float) -> float:
        known = self.until.get(key, 0.0)
        longest = max(view.ejection_left for view in views)
        if longest and now + longest > known + SAME_EJECTION_SECONDS:
            return longest
        failed = sum(view.consecutive_failures for view in views if view.state == State.READY.value)
        limits = model.outlier_detection
        is_due = now > known + SAME_EJECTION_SECONDS and failed >= limits.consecutive_failures
        return limits.base_ejection_time if is_due else 0.0

    def active(self, now: float) -> list[ReplicaEvent]:
        reasons = {key: ejected.reason for key, ejected in self.current.items()}
        return [
            ReplicaEvent(*key, Event.EJECT.value, until - now, reasons.get(key))
            for key, until in self.until.items()
            if until > now
        ]

    def forget(self, key: ReplicaKey, now: float) -> None:
        """The replica is gone or restarted: recent reports are not about the new one."""
        if self.until.pop(key, None) is not None:
            self._ignored_until[key] = now + SAME_EJECTION_SECONDS


def _is_new(before: ActiveEjection, current: ActiveEjection) -> bool:
    """It returned and failed again between two reports."""
    return current.since > before.since + max(SAME_EJECTION_SECONDS, before.seconds - SAME_EJECTION_SECONDS)


def active_ejections(reports: Iterable[WorkerReport], now: float) -> dict[ReplicaKey, ActiveEjection]:
    """With the reason of a worker that found the failure itself, if one did."""
    found: dict[ReplicaKey, ActiveEjection] = {}
    by_peer = EjectionRule.REPORTED_BY_PEER
    for report in reports:
        for r in report.replicas:
            if not r.ejection_left:
                continue
            known = found.get((r.model, r.id))
            reason = r.ejection_reason or UNKNOWN_REASON
            if known is None or (known.reason.rule is by_peer and reason.rule is not by_peer):
                found[r.model, r.id] = ActiveEjection(now - r.ejected_since, r.ejected_since + r.ejection_left, reason)
    return found


def _merged_reason(views: list[ReplicaReport]) -> EjectionReason | None:
    """Why one of them ejected it; otherwise what all saw together."""
    for view in views:
        if view.ejection_reason is not None and view.ejection_reason.rule is not EjectionRule.REPORTED_BY_PEER:
            return view.ejection_reason
    last = next((view.last_error for view in views if view.last_error), "")
    failed = sum(view.consecutive_failures for view in views)
    return EjectionReason(EjectionRule.CONSECUTIVE_FAILURES, failed, last_failure=f"with {last}") if last else None
