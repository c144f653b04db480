"""The sources of each model, polled side by side, and the list they make together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import NamedTuple

from ...config import DiscoveryConfig, ReplicaConfig
from ..observability.views import DiscoveryView
from .base import list_some
from .source_poller import SourcePoller

OnChange = Callable[[str, tuple[ReplicaConfig, ...]], None]

log = logging.getLogger("steelyard.control")


class MergedReplicas(NamedTuple):
    replicas: tuple[ReplicaConfig, ...]
    duplicates: tuple[tuple[str, ...], ...]  # for each source, the ids it names that one before it names too


def merge_replicas(sources: Iterable[Iterable[ReplicaConfig]]) -> MergedReplicas:
    """In their order; of two replicas with the same id, the first."""
    found: dict[str, ReplicaConfig] = {}
    doubles = []
    for replicas in sources:
        named = {replica.name: replica for replica in replicas}
        doubles.append(tuple(name for name in named if name in found))
        for name, replica in named.items():
            found.setdefault(name, replica)
    return MergedReplicas(tuple(found.values()), tuple(doubles))


class ModelSources:
    def __init__(self, model: str, changed: OnChange, rng: Random) -> None:
        self._model = model
        self._changed = changed
        self._rng = rng
        self._pollers: dict[str, SourcePoller] = {}  # by fingerprint: with other times, it is still the same source
        self._reported: tuple[ReplicaConfig, ...] = ()  # with which `changed` was called last
        # Of replaced sources: kept until their successors have named something.
        self._left: tuple[ReplicaConfig, ...] = ()
        self._awaited: list[SourcePoller] = []

    def follow(self, entries: Iterable[DiscoveryConfig]) -> list[asyncio.Task[None]]:
        """Returns the tasks of the others, which end soon."""
        wanted = {settings.fingerprint(): settings for settings in entries}
        gone = [poller for what, poller in self._pollers.items() if what not in wanted]
        new = [what for what in wanted if what not in self._pollers]
        self._pollers = {
            what: self._pollers.get(what) or SourcePoller(self._model, settings, self.refresh, self._rng)
            for what, settings in wanted.items()
        }
        for what, settings in wanted.items():
            self._pollers[what].reconfigure(settings)
        if gone:
            self._left = merge_replicas([*(poller.hold_down.replicas for poller in gone), self._left]).replicas
            self._awaited += [self._pollers[what] for what in new]
        self.refresh()
        return [poller.stop() for poller in gone]

    def stop(self) -> list[asyncio.Task[None]]:
        return [poller.stop() for poller in self._pollers.values()]

    def views(self) -> list[DiscoveryView]:
        *doubles, of_left = self._united().duplicates
        found = [self._view(poller, names) for poller, names in zip(self._pollers.values(), doubles, strict=True)]
        if self._left:
            found.append(self._view_of_left(set(of_left)))
        return found

    def refresh(self) -> None:
        current = self._pollers.values()
        self._awaited = [poller for poller in self._awaited if poller in current and not poller.answered]
        if not self._awaited:
            self._left = ()
        replicas = self._united().replicas
        if replicas == self._reported:
            return
        try:
            self._changed(self._model, replicas)
        except Exception:  # tried again after the next poll
            log.exception("replicas of %s: what was found could not be applied", self._model)
        else:
            self._reported = replicas

    def _united(self) -> MergedReplicas:
        return merge_replicas([*(poller.hold_down.replicas for poller in self._pollers.values()), self._left])

    def _view(self, poller: SourcePoller, doubles: tuple[str, ...]) -> DiscoveryView:
        hold_down = poller.hold_down
        problems = [hold_down.problem] if hold_down.problem else []
        if doubles:
            problems.append(f"an earlier source names these too and takes precedence: {list_some(list(doubles))}")
        return DiscoveryView(
            model=self._model,
            source=poller.describe(),
            replicas=len(hold_down.replicas) - len(doubles),
            age=None if hold_down.last_success_at is None else time.monotonic() - hold_down.last_success_at,
            problem="; ".join(problems),
            held_back=hold_down.held_back,
        )

    def _view_of_left(self, doubles: set[str]) -> DiscoveryView:
        ids = tuple(replica.name for replica in self._left if replica.name not in doubles)
        awaited = [poller.describe() for poller in self._awaited]
        return DiscoveryView(
            model=self._model,
            source="sources that are no longer configured",
            replicas=len(ids),
            age=None,
            problem=f"kept until these sources have an answer: {list_some(awaited)}",
            held_back=ids,
        )


class DiscoveryManager:
    """Calls `changed(model, replicas)` when the list changes; if that raises, again after the next poll."""

    def __init__(self, changed: OnChange, *, rng: Random | None = None) -> None:
        self._changed = changed
        self._rng = rng or Random()
        self._models: dict[str, ModelSources] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def set_sources(self, sources: Mapping[str, tuple[DiscoveryConfig, ...]]) -> None:
        for model in dict.fromkeys([*self._models, *sources]):
            model_sources = self._models.setdefault(model, ModelSources(model, self._changed, self._rng))
            self._end(model_sources.follow(sources.get(model, ())))
        self._models = {model: model_sources for model, model_sources in self._models.items() if sources.get(model)}

    def views(self) -> tuple[DiscoveryView, ...]:
        return tuple(view for model_sources in self._models.values() for view in model_sources.views())

    async def close(self) -> None:
        """What was found stays in force."""
        for model_sources in self._models.values():
            self._end(model_sources.stop())
        self._models = {}
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
