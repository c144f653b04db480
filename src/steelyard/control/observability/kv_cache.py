"""Engines whose key-value cache is too small for their load: they preempt requests, or let them wait for room.

A preempted request is computed anew later. One now and then is normal, so an alarm begins with the second reading of
the metrics within a minute that shows more of them; where an engine does not count them, when its cache has been full
and requests have waited in it for half a minute. It ends when neither was seen for a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...config import Config
from ...core.replica import State
from ...protocols.load import EngineLoad
from ..fleet.observer import FleetObserver
from ..fleet.registry import ReplicaKey
from .views import Alarm

WINDOW_SECONDS: Final = 60.0
FULL_SHARE: Final = 0.98
FULL_AFTER_SECONDS: Final = 30.0
GONE: Final = (State.GONE, State.UNREACHABLE)


class _Cache:
    """Of one replica."""

    def __init__(self) -> None:
        self.preempted: float | None = None  # by the last reading
        self.rises: list[tuple[float, float]] = []  # when, and by how many, in the last minute
        self.full_since: float | None = None
        self.alarm_since: float | None = None
        self.seen = 0.0  # when there was last a reason for the alarm

    def note(self, load: EngineLoad, now: float) -> None:
        before, self.preempted = self.preempted, load.preempted
        self.rises = [rise for rise in self.rises if now - rise[0] < WINDOW_SECONDS]
        if before is not None and load.preempted is not None and load.preempted > before:
            self.rises.append((now, load.preempted - before))
        full = load.preempted is None and (load.cache or 0.0) >= FULL_SHARE and bool(load.waiting)
        self.full_since = None if not full else now if self.full_since is None else self.full_since
        stays_full = self.full_since is not None and now - self.full_since >= FULL_AFTER_SECONDS
        if len(self.rises) > 1 or stays_full or (self.rises and self.alarm_since is not None):
            self.alarm_since = now if self.alarm_since is None else self.alarm_since
            self.seen = now
        elif now - self.seen >= WINDOW_SECONDS:
            self.alarm_since = None

    def words(self) -> str:
        if self.rises:
            count = sum(by for _, by in self.rises)
            return f"its engine preempted {count:.0f} requests in the last minute"
        return "requests wait in its engine"


class KvCacheWatch(FleetObserver):
    def __init__(self) -> None:
        self._caches: dict[ReplicaKey, _Cache] = {}

    def config_changed(self, config: Config, now: float) -> None:
        self._caches = {key: cache for key, cache in self._caches.items() if key[0] in config.models}

    def state_changed(self, key: ReplicaKey, state: State, now: float) -> None:
        if state in GONE:
            self._caches.pop(key, None)

    def load_reported(self, key: ReplicaKey, load: EngineLoad, now: float) -> None:
        if load.preempted is not None or load.cache is not None:
            self._caches.setdefault(key, _Cache()).note(load, now)

    def alarms(self, now: float) -> Iterator[Alarm]:
        for (model, id), cache in self._caches.items():
            if cache.alarm_since is not None and now - cache.seen < WINDOW_SECONDS:
                what = f"{model}/{id}: {cache.words()}: its key-value cache is too small for its load"
                yield Alarm(code="kv_cache_full", message=what, age=now - cache.alarm_since, model=model, replica=id)
