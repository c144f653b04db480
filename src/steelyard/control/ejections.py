"""What one worker learned of a failing replica, for all of them, and for people. Pure: reports and times in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..config import ModelConfig
from ..core.ejection_reason import EjectionReason, Rule
from ..core.replica import Event, State
from ..link.messages import Change, ReplicaReport, Report
from .roster import Key

SAME = 2.0  # seconds: two sentences that end so close together are one; reports are up to a second old
NO_REASON = EjectionReason(Rule.TOLD)


class Ejected(NamedTuple):
    """A replica that some worker has ejected, as of the last reports."""

    since: float
    seconds: float  # it was to be out
    reason: EjectionReason


class Ejections:
    """Each worker sees a part of the requests, so each sees a part of the failures: here they are put together."""

    def __init__(self) -> None:
        self.current: dict[Key, Ejected] = {}
        self._until: dict[Key, float] = {}
        self._workers: dict[Key, int] = {}  # the most that reported it as ejected, of those told to eject it
        self._pardoned: dict[Key, float] = {}  # until when reports may still be of who was there before

    def hear(self, reports: Iterable[Report], models: Mapping[str, ModelConfig], now: float) -> list[Change]:
        """From the latest reports of all workers: whom all of them should eject now."""
        self._until = {key: until for key, until in self._until.items() if until > now - SAME}
        self._pardoned = {key: until for key, until in self._pardoned.items() if until > now}
        seen: dict[Key, list[ReplicaReport]] = {}
        for report in reports:
            for replica in report.replicas:
                if (replica.consecutive or replica.ejected_for) and (replica.model, replica.id) not in self._pardoned:
                    seen.setdefault((replica.model, replica.id), []).append(replica)
        found = self._ended_early(seen, now)
        for key, views in seen.items():
            model = models.get(key[0])
            if key in self._pardoned or model is None or not model.ejection.enabled:
                continue
            if seconds := self._sentence(key, views, model, now):
                self._until[key] = now + seconds
                self._workers[key] = 0
                found.append(Change(*key, Event.EJECT.value, seconds, _reason(views)))
        return found

    def _ended_early(self, seen: Mapping[Key, list[ReplicaReport]], now: float) -> list[Change]:
        """In a panic a good answer ends an ejection: where one worker saw it, all should try."""
        found = []
        for key, until in list(self._until.items()):
            out = sum(view.ejected_for > 0.0 for view in seen.get(key, ()))
            if out < self._workers.get(key, 0) and until > now + SAME:
                self.forget(key, now)
                found.append(Change(*key, Event.RESTORE.value))
            else:
                self._workers[key] = max(out, self._workers.get(key, 0))
        self._workers = {key: count for key, count in self._workers.items() if key in self._until}
        return found

    def take_in(self, reports: Iterable[Report], now: float) -> tuple[dict[Key, Ejected], dict[Key, Ejected]]:
        """From the latest reports: those that were ejected since the last ones, and those that are so no longer."""
        before, self.current = self.current, ejected_in(reports, now)
        began = {
            key: ejected
            for key, ejected in self.current.items()
            if key not in before or _is_another(before[key], ejected)
        }
        ended = {key: ejected for key, ejected in before.items() if key not in self.current or key in began}
        return began, ended

    def _sentence(self, key: Key, views: list[ReplicaReport], model: ModelConfig, now: float) -> float:
        known = self._until.get(key, 0.0)
        longest = max(view.ejected_for for view in views)
        if longest and now + longest > known + SAME:
            return longest
        failed = sum(view.consecutive for view in views if view.state == State.READY.value)
        return model.ejection.seconds if now > known + SAME and failed >= model.ejection.consecutive else 0.0

    def in_force(self, now: float) -> list[Change]:
        """For a worker that is new."""
        return [
            Change(*key, Event.EJECT.value, until - now, self.current[key].reason if key in self.current else None)
            for key, until in self._until.items()
            if until > now
        ]

    def forget(self, key: Key, now: float) -> None:
        """It is gone, or another process by now; what was reported a moment ago is not of that one."""
        if self._until.pop(key, None) is not None:
            self._pardoned[key] = now + SAME


def _is_another(before: Ejected, current: Ejected) -> bool:
    """It came back and failed its trial between two reports."""
    return current.since > before.since + max(SAME, before.seconds - SAME)


def ejected_in(reports: Iterable[Report], now: float) -> dict[Key, Ejected]:
    """Each replica that some worker has ejected, with the reason of one that found it itself, if any did."""
    found: dict[Key, Ejected] = {}
    for report in reports:
        for r in report.replicas:
            if not r.ejected_for:
                continue
            known = found.get((r.model, r.id))
            reason = r.ejection or NO_REASON
            if known is None or (known.reason.rule is Rule.TOLD and reason.rule is not Rule.TOLD):
                found[r.model, r.id] = Ejected(now - r.ejected_since, r.ejected_since + r.ejected_for, reason)
    return found


def _reason(views: list[ReplicaReport]) -> EjectionReason | None:
    """Why one of them ejected it; or what all together saw."""
    for view in views:
        if view.ejection is not None and view.ejection.rule is not Rule.TOLD:
            return view.ejection
    last = next((view.last_error for view in views if view.last_error), "")
    failed = sum(view.consecutive for view in views)
    return EjectionReason(Rule.IN_A_ROW, failed, last_failure=f"with {last}") if last else None
