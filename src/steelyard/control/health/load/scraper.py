"""Scrapes the load that replicas report, to correct the gateway's own counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from ....protocols import EngineLoad
from ...backoff import jittered
from ...fleet.registry import ReplicaKey
from ..client.origin import TlsContexts
from ..probe import ProbeTarget
from ..schedule import Schedule, TaskLimiter
from .metrics import MetricsReader, metrics_location

MAX_CONCURRENT_SCRAPES = 128
MAX_UNSPREAD_SCRAPES = 50  # up to this many new replicas are read at once

log = logging.getLogger("steelyard.control.health")


class ScrapedLoad(NamedTuple):
    load: EngineLoad | None  # the last that was read
    age: float | None  # seconds since then; None: never
    problem: str  # why the last read failed; empty: it did not
    interval: float  # seconds between two reads


class LoadScraper:
    """Needs a running loop. Calls `heard(key, load)` after every good read, and `restarted(key)` when another process
    answers than before."""

    def __init__(
        self,
        heard: Callable[[ReplicaKey, EngineLoad], None],
        restarted: Callable[[ReplicaKey], None] | None = None,
        *,
        rng: Random | None = None,
    ) -> None:
        self.on_load = heard
        self._restarted = restarted
        self._rng = rng or Random()
        self._loop = asyncio.get_running_loop()
        self._contexts = TlsContexts()
        self._readers: dict[ReplicaKey, MetricsReader] = {}
        self._tasks: dict[MetricsReader, asyncio.Task[None]] = {}
        self._limiter = TaskLimiter(MAX_CONCURRENT_SCRAPES, self._start, self._ended)
        self._schedule = Schedule(self._limiter.submit)

    def set_targets(self, targets: Mapping[ReplicaKey, ProbeTarget]) -> None:
        """From now on exactly these, as far as they have metrics."""
        wanted = {key: target for key, target in targets.items() if metrics_location(target) is not None}
        for key, reader in list(self._readers.items()):
            if wanted.get(key) != reader.target:
                self._drop(key)
        fresh = [key for key in wanted if key not in self._readers]
        for key in fresh:
            reader = self._readers[key] = MetricsReader(key, wanted[key], self._contexts)
            spread = reader.interval if len(fresh) > MAX_UNSPREAD_SCRAPES else 0.0
            self._schedule.at(reader, self._loop.time() + self._rng.uniform(0.0, spread))

    def view(self, key: ReplicaKey) -> ScrapedLoad | None:
        """None: it is not read."""
        reader = self._readers.get(key)
        if reader is None:
            return None
        age = None if reader.read_at is None else self._loop.time() - reader.read_at
        return ScrapedLoad(reader.load, age, reader.problem, reader.interval)

    async def close(self) -> None:
        self._schedule.close()
        self._readers.clear()
        await self._limiter.close()

    def _drop(self, key: ReplicaKey) -> None:
        reader = self._readers.pop(key)
        self._schedule.forget(reader)
        self._limiter.forget(reader)
        if (task := self._tasks.get(reader)) is not None:
            task.cancel()

    def _start(self, reader: MetricsReader) -> asyncio.Task[None]:
        task = self._tasks[reader] = self._loop.create_task(self._read(reader))
        return task

    async def _read(self, reader: MetricsReader) -> None:
        good = await reader.read()
        if self._readers.get(reader.key) is not reader:
            return
        if reader.restarted and self._restarted is not None:
            self._restarted(reader.key)
        if good and reader.load is not None:
            self.on_load(reader.key, reader.load)

    def _ended(self, reader: MetricsReader, task: asyncio.Future[None]) -> None:
        del self._tasks[reader]
        if not task.cancelled() and (error := task.exception()) is not None:  # of a callback
            log.error("the load of %s of %s cannot be told", reader.key[1], reader.key[0], exc_info=error)
        if self._readers.get(reader.key) is reader:
            self._schedule.at(reader, self._loop.time() + jittered(reader.pause, self._rng))
