"""Scrapes the load that replicas report, to correct the gateway's own counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from ...protocols import EngineLoad, MetricsLocation, make_dialect, read_metrics
from ..backoff import exponential_delay, jittered
from ..fleet.registry import ReplicaKey
from .http_client import ProbeOrigin, ReplicaRequestError, ResponseTimeoutError, TlsContexts, describe_request
from .probe import ProbeTarget
from .schedule import Schedule, TaskLimiter
from .tracker import ProcessIdentity

MAX_METRICS_BYTES = 8 << 20
AGENT_METRICS = MetricsLocation("/steelyard/metrics")
MIN_INTERVAL_SECONDS = 1.0  # some engines hang when read all the time (llm-d-router#1842)
MAX_READ_SECONDS = 2.0  # or the interval if that is less
NOT_FOUND_RETRY_SECONDS = 60.0  # where the dialect's metrics page is missing
START_TIME_TOLERANCE_SECONDS = 2.0  # some processes compute their start from a clock that is adjusted
MAX_RETRY_SECONDS = 30.0  # after many reads in a row without an answer
NOT_FOUND_STATUSES = (404, 405, 501)
MAX_CONCURRENT_SCRAPES = 128
MAX_UNSPREAD_SCRAPES = 50  # up to this many new replicas are read at once

log = logging.getLogger("steelyard.control.health")


def metrics_location(target: ProbeTarget) -> MetricsLocation | None:
    """None: this replica's metrics are not read."""
    load = target.load
    known = make_dialect(target.dialect).metrics if target.dialect else None
    if known is None and target.settings.device:
        known = AGENT_METRICS  # for its device memory, even where no request goes
    if not (known is not None if load.enabled is None else load.enabled):
        return None
    known = known or MetricsLocation()
    return MetricsLocation(load.path or known.path, load.port or known.port)


class MetricsReader:
    def __init__(self, key: ReplicaKey, target: ProbeTarget, contexts: TlsContexts) -> None:
        at = metrics_location(target)
        assert at is not None
        self.key = key
        self.target = target
        self.interval = max(MIN_INTERVAL_SECONDS, float(target.load.interval))
        self.pause = self.interval  # until the next read
        self.load: EngineLoad | None = None
        self.read_at: float | None = None
        self.problem = ""
        self.restarted = False  # between the last two reads
        self._failures = 0  # reads in a row without an answer
        self._at = at
        self._request = describe_request("GET", at.path)
        self._origin = ProbeOrigin(target, contexts, at.port)
        self._timeout = min(MAX_READ_SECONDS, self.interval)
        self._started: ProcessIdentity[float] = ProcessIdentity(
            lambda one, other: abs(one - other) <= START_TIME_TOLERANCE_SECONDS
        )

    async def read(self) -> bool:
        """False: it failed (`problem`), and `load` is still the last one."""
        self.restarted = False
        self.pause = self.interval
        try:
            self.problem = await self._read()
            self._failures = 0
        except ReplicaRequestError as error:
            self._failures += 1
            self.pause = exponential_delay(self.interval, max(self.interval, MAX_RETRY_SECONDS), self._failures)
            limit = f" ({self._timeout:g} s)" if isinstance(error, ResponseTimeoutError) else ""
            self.problem = f"{error}{limit}: {self._request}"
        except Exception as error:  # an unexpected page must not end the scraping
            self.problem = f"its metrics cannot be read: {type(error).__name__}: {error}"
        return not self.problem

    async def _read(self) -> str:
        headers = {"accept": "text/plain", **self.target.health.headers}
        request = self._origin.build_request("GET", self._at.path, headers)
        response = await self._origin.send(request, timeout=self._timeout, max_bytes=MAX_METRICS_BYTES)
        if not 200 <= response.status < 300:
            if response.status in NOT_FOUND_STATUSES and self.target.load.enabled is None:
                self.pause = NOT_FOUND_RETRY_SECONDS
            return f"answers {response.status} to {self._request}"
        load = read_metrics(response.body)
        if load is None:
            return f"the answer to {self._request} says nothing of its load"
        self.restarted = load.started is not None and self._started.is_restart(load.started)
        self.load = load
        self.read_at = asyncio.get_running_loop().time()
        return ""


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
            log.error("the load of %s of %s cannot be reported", reader.key[1], reader.key[0], exc_info=error)
        if self._readers.get(reader.key) is reader:
            self._schedule.at(reader, self._loop.time() + jittered(reader.pause, self._rng))
