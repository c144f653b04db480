"""The sources of all models, polled side by side: none can hold up another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

from ...config import DiscoveryConfig
from ..observability.views import DiscoveryView
from .model_sources import ModelSources, OnChange


class DiscoveryManager:
    """Calls `changed(model, replicas)` when the list changes; if that raises, again after the next poll."""

    def __init__(self, changed: OnChange, *, rng: Random | None = None) -> None:
        self._changed = changed
        self._rng = rng or Random()
        self._models: dict[str, ModelSources] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def set_sources(self, sources: Mapping[str, tuple[DiscoveryConfig, ...]]) -> None:
        """What is known of sources that stay, stays."""
        for model in dict.fromkeys([*self._models, *sources]):
            followed = self._models.setdefault(model, ModelSources(model, self._changed, self._rng))
            self._end(followed.follow(sources.get(model, ())))
        self._models = {model: followed for model, followed in self._models.items() if sources.get(model)}

    def views(self) -> tuple[DiscoveryView, ...]:
        return tuple(view for followed in self._models.values() for view in followed.views())

    async def close(self) -> None:
        """What was found stays in force."""
        for followed in self._models.values():
            self._end(followed.stop())
        self._models = {}
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
