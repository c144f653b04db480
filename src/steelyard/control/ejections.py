"""What one worker learned of a failing replica, for all of them. Pure: reports and times in, ejections out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..config import ModelConfig
from ..core.replica import State
from ..link.messages import Change, ReplicaReport, Report
from .roster import Key

SAME = 2.0  # seconds: two sentences that end so close together are one; reports are up to a second old


class Ejections:
    """Each worker sees a part of the requests, so each sees a part of the failures: here they are put together."""

    def __init__(self) -> None:
        self._until: dict[Key, float] = {}
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
        found = []
        for key, views in seen.items():
            model = models.get(key[0])
            if model is not None and model.ejection.enabled and (seconds := self._sentence(key, views, model, now)):
                self._until[key] = now + seconds
                found.append(Change(*key, "eject", seconds))
        return found

    def _sentence(self, key: Key, views: list[ReplicaReport], model: ModelConfig, now: float) -> float:
        known = self._until.get(key, 0.0)
        longest = max(view.ejected_for for view in views)
        if longest and now + longest > known + SAME:
            return longest
        failed = sum(view.consecutive for view in views if view.state == State.READY.value)
        return model.ejection.seconds if now > known + SAME and failed >= model.ejection.consecutive else 0.0

    def in_force(self, now: float) -> list[Change]:
        """For a worker that is new."""
        return [Change(*key, "eject", until - now) for key, until in self._until.items() if until > now]

    def forget(self, key: Key, now: float) -> None:
        """It is gone, or another process by now; what was reported a moment ago is not of that one."""
        if self._until.pop(key, None) is not None:
            self._pardoned[key] = now + SAME
