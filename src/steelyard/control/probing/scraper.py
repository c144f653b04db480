"""Reads what replicas say of their load, now and then, and tells it. It corrects the gateway's own counts, no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import NamedTuple

from ...protocols import EngineLoad
from .lane import Lane
from .metrics import Metrics, metrics_at
from .schedule import Schedule
from .target import Key, Target
from .tls import Contexts

AT_ONCE = 128
JITTER = 0.1
FEW = 50  # replicas that are all read at once when they are new

log = logging.getLogger("steelyard.control.probing")


class LoadSeen(NamedTuple):
    """What is known of a replica's load."""

    load: EngineLoad | None  # the last that could be read
    age: float | None  # seconds since then; None: never
    problem: str  # why the last read failed; empty: it did not
    interval: float  # seconds between two reads


class Scraper:
    """To be made and used inside a running loop.

    `heard(key, load)` is told every good read; `restarted(key)`, when the server process is another than before.
    """

    def __init__(
        self,
        heard: Callable[[Key, EngineLoad], None],
        restarted: Callable[[Key], None] | None = None,
        *,
        rng: Random | None = None,
    ) -> None:
        self._heard = heard
        self._restarted = restarted
        self._rng = rng or Random()
        self._loop = asyncio.get_running_loop()
        self._contexts = Contexts()
        self._read: dict[Key, Metrics] = {}
        self._tasks: dict[asyncio.Task[None], Metrics] = {}
        self._schedule: Schedule[Metrics] = Schedule(lambda metrics: self._lane.enter(metrics))
        self._lane: Lane[Metrics] = Lane(AT_ONCE, self._begin)

    def follow(self, targets: Mapping[Key, Target]) -> None:
        """From now on exactly these, as far as they have metrics to read."""
        wanted = {key: target for key, target in targets.items() if metrics_at(target) is not None}
        for key, metrics in list(self._read.items()):
            if wanted.get(key) != metrics.target:
                self._drop(key)
        fresh = [key for key in wanted if key not in self._read]
        for key in fresh:
            metrics = self._read[key] = Metrics(key, wanted[key], self._contexts)
            spread = metrics.interval if len(fresh) > FEW else 0.0
            self._schedule.at(metrics, self._loop.time() + self._rng.uniform(0.0, spread))

    def view(self, key: Key) -> LoadSeen | None:
        """None: it is not asked."""
        metrics = self._read.get(key)
        if metrics is None:
            return None
        age = None if metrics.read_at is None else self._loop.time() - metrics.read_at
        return LoadSeen(metrics.load, age, metrics.problem, metrics.interval)

    async def close(self) -> None:
        """Returns when nothing is under way any more."""
        self._schedule.close()
        for key in list(self._read):
            self._drop(key)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _drop(self, key: Key) -> None:
        metrics = self._read.pop(key)
        self._schedule.forget(metrics)
        self._lane.forget(metrics)
        for task, read in self._tasks.items():
            if read is metrics:
                task.cancel()

    def _begin(self, metrics: Metrics) -> None:
        task = self._loop.create_task(self._ask(metrics))
        self._tasks[task] = metrics
        task.add_done_callback(partial(self._done, metrics))

    async def _ask(self, metrics: Metrics) -> None:
        good = await metrics.read()
        if self._read.get(metrics.key) is not metrics:
            return
        if metrics.restarted and self._restarted is not None:
            self._restarted(metrics.key)
        if good and metrics.load is not None:
            self._heard(metrics.key, metrics.load)

    def _done(self, metrics: Metrics, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self._lane.leave()
        if not task.cancelled() and (problem := task.exception()) is not None:  # whatever those who are told may do
            log.error("the load of %s of %s cannot be told", metrics.key[1], metrics.key[0], exc_info=problem)
        if self._read.get(metrics.key) is metrics:
            pause = metrics.pause * self._rng.uniform(1.0 - JITTER, 1.0 + JITTER)
            self._schedule.at(metrics, self._loop.time() + pause)
