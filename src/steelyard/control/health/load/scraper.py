"""Reads what replicas say of their load, now and then, and tells it. It corrects the gateway's own counts, no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import NamedTuple

from ....protocols import EngineLoad
from ..client.origin import TlsContexts
from ..concurrency import ConcurrencyLimiter
from ..probe import ProbeTarget, ReplicaKey
from ..schedule import Schedule
from .metrics import MetricsReader, metrics_location

MAX_CONCURRENT_SCRAPES = 128
JITTER_RATIO = 0.1
MAX_UNSPREAD_SCRAPES = 50  # replicas that are all read at once when they are new

log = logging.getLogger("steelyard.control.health")


class ScrapedLoad(NamedTuple):
    """What is known of a replica's load."""

    load: EngineLoad | None  # the last that could be read
    age: float | None  # seconds since then; None: never
    problem: str  # why the last read failed; empty: it did not
    interval: float  # seconds between two reads


class LoadScraper:
    """To be made and used inside a running loop.

    `heard(key, load)` is told every good read; `restarted(key)`, when the server process is another than before.
    """

    def __init__(
        self,
        heard: Callable[[ReplicaKey, EngineLoad], None],
        restarted: Callable[[ReplicaKey], None] | None = None,
        *,
        rng: Random | None = None,
    ) -> None:
        self._heard = heard
        self._restarted = restarted
        self._rng = rng or Random()
        self._loop = asyncio.get_running_loop()
        self._contexts = TlsContexts()
        self._read: dict[ReplicaKey, MetricsReader] = {}
        self._tasks: dict[asyncio.Task[None], MetricsReader] = {}
        self._schedule: Schedule[MetricsReader] = Schedule(lambda metrics: self._lane.submit(metrics))
        self._lane: ConcurrencyLimiter[MetricsReader] = ConcurrencyLimiter(MAX_CONCURRENT_SCRAPES, self._begin)

    def set_targets(self, targets: Mapping[ReplicaKey, ProbeTarget]) -> None:
        """From now on exactly these, as far as they have metrics to read."""
        wanted = {key: target for key, target in targets.items() if metrics_location(target) is not None}
        for key, metrics in list(self._read.items()):
            if wanted.get(key) != metrics.target:
                self._drop(key)
        fresh = [key for key in wanted if key not in self._read]
        for key in fresh:
            metrics = self._read[key] = MetricsReader(key, wanted[key], self._contexts)
            spread = metrics.interval if len(fresh) > MAX_UNSPREAD_SCRAPES else 0.0
            self._schedule.at(metrics, self._loop.time() + self._rng.uniform(0.0, spread))

    def view(self, key: ReplicaKey) -> ScrapedLoad | None:
        """None: it is not asked."""
        metrics = self._read.get(key)
        if metrics is None:
            return None
        age = None if metrics.read_at is None else self._loop.time() - metrics.read_at
        return ScrapedLoad(metrics.load, age, metrics.problem, metrics.interval)

    async def close(self) -> None:
        """Returns when nothing is under way any more."""
        self._schedule.close()
        for key in list(self._read):
            self._drop(key)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _drop(self, key: ReplicaKey) -> None:
        metrics = self._read.pop(key)
        self._schedule.forget(metrics)
        self._lane.forget(metrics)
        for task, read in self._tasks.items():
            if read is metrics:
                task.cancel()

    def _begin(self, metrics: MetricsReader) -> None:
        task = self._loop.create_task(self._ask(metrics))
        self._tasks[task] = metrics
        task.add_done_callback(partial(self._done, metrics))

    async def _ask(self, metrics: MetricsReader) -> None:
        good = await metrics.read()
        if self._read.get(metrics.key) is not metrics:
            return
        if metrics.restarted and self._restarted is not None:
            self._restarted(metrics.key)
        if good and metrics.load is not None:
            self._heard(metrics.key, metrics.load)

    def _done(self, metrics: MetricsReader, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._lane.release()
        if not task.cancelled() and (problem := task.exception()) is not None:  # whatever those who are told may do
            log.error("the load of %s of %s cannot be told", metrics.key[1], metrics.key[0], exc_info=problem)
        if self._read.get(metrics.key) is metrics:
            pause = metrics.pause * self._rng.uniform(1.0 - JITTER_RATIO, 1.0 + JITTER_RATIO)
            self._schedule.at(metrics, self._loop.time() + pause)
