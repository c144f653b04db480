"""Polls one source for as long as it is configured."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

from ...config import DiscoveryConfig
from ..backoff import exponential_delay, jittered
from .base import MAX_REPLICAS_PER_SOURCE, DiscoveryError, DiscoveryResult, Source, too_many_replicas
from .hold_down import HoldDown

MIN_RETRY_SECONDS = 1.0  # for a TTL of 0, and after a failed poll
MIN_DELAY_SECONDS = 0.05  # for an interval of 0


def delay_after_success(ttl: float | None, interval: float, rng: Random) -> float:
    seconds = interval if ttl is None else min(interval, max(MIN_RETRY_SECONDS, ttl))
    return max(MIN_DELAY_SECONDS, jittered(seconds, rng))


def delay_after_failure(times: int, interval: float, rng: Random) -> float:
    """1, 2, 4 … seconds, but no longer than the interval. `times`: in a row, this one included."""
    return max(MIN_DELAY_SECONDS, jittered(exponential_delay(MIN_RETRY_SECONDS, interval, times), rng))


log = logging.getLogger("steelyard.control")


class SourcePoller:
    """Begins at once; only `stop` ends it, whatever a source does."""

    def __init__(self, model: str, settings: DiscoveryConfig, looked: Callable[[], None], rng: Random) -> None:
        self.hold_down = HoldDown()
        self._model = model
        self._settings = settings
        self._source: Source | None = None  # opened by the first poll, so that its failure is like any other
        self._looked = looked
        self._rng = rng
        self._failures = 0  # in a row
        self._resting: asyncio.Timeout | None = None
        self._task = asyncio.create_task(self._run())

    def describe(self) -> str:
        return self._settings.describe()

    @property
    def answered(self) -> bool:
        return self.hold_down.last_success_at is not None

    def reconfigure(self, settings: DiscoveryConfig) -> None:
        """Other times for the same source, which is polled soon."""
        if settings != self._settings:
            self._settings = settings
            if self._resting is not None and not self._resting.expired():
                self._resting.reschedule(asyncio.get_running_loop().time())

    def stop(self) -> asyncio.Task[None]:
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        while True:
            before = self.hold_down.problem
            delay = await self._look()
            self._tell(before)
            self._looked()
            await self._rest(delay)

    async def _look(self) -> float:
        try:
            self._source = self._source or self._settings.open()
            found = await self._source.poll()
            if len(found.replicas) > MAX_REPLICAS_PER_SOURCE:
                raise too_many_replicas(len(found.replicas))
            if self.hold_down.poll_succeeded(found.replicas, time.monotonic(), self._settings.hold_down, found.note):
                self._failures = 0
                return self._until_next(found)
        except DiscoveryError as problem:
            self.hold_down.poll_failed(str(problem))
        except Exception as problem:
            if not self._failures:
                log.exception("replicas of %s: %s", self._model, self._settings.describe())
            self.hold_down.poll_failed(f"{type(problem).__name__}: {problem}")
        self._failures += 1
        return delay_after_failure(self._failures, self._settings.interval, self._rng)

    def _until_next(self, found: DiscoveryResult) -> float:
        delay = delay_after_success(found.ttl, self._settings.interval, self._rng)
        due = self.hold_down.next_removal_at(self._settings.hold_down)
        return delay if due is None else min(delay, max(MIN_DELAY_SECONDS, due - time.monotonic()))

    async def _rest(self, delay: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(delay) as self._resting:
                await asyncio.sleep(MIN_DELAY_SECONDS)
                try:
                    await (self._source or Source()).wait_for_change()
                except Exception:
                    log.exception("replicas of %s: %s: the watch failed", self._model, self._settings.describe())
                    await asyncio.sleep(delay)
        self._resting = None

    def _tell(self, before: str) -> None:
        problem = self.hold_down.problem
        if problem and problem != before:
            log.warning("replicas of %s: %s: %s", self._model, self._settings.describe(), problem)
        elif before and not problem:
            log.info("replicas of %s: %s: recovered", self._model, self._settings.describe())
