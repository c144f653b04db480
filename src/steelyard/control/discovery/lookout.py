"""One source, looked at again and again for as long as it is configured."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

from ...config import Discovery
from . import make_source
from .base import MOST, DiscoveryError, Found, too_many
from .pace import LEAST, after_failed, after_good
from .settled import Settled

log = logging.getLogger("steelyard.control")


class Lookout:
    """Begins at once. Nothing that a source does ends it, only `stop` does."""

    def __init__(self, model: str, settings: Discovery, looked: Callable[[], None], rng: Random) -> None:
        """`looked` is called after every look."""
        self.settled = Settled()
        self.source = make_source(settings)
        self._model = model
        self._settings = settings
        self._looked = looked
        self._rng = rng
        self._failures = 0  # in a row
        self._resting: asyncio.Timeout | None = None
        self._task = asyncio.create_task(self._run())

    @property
    def answered(self) -> bool:
        """Has it ever named a replica?"""
        return self.settled.good_at is not None

    def adjust(self, settings: Discovery) -> None:
        """Other times for the same source, which is looked at soon. What is known of it stays."""
        if settings != self._settings:
            self._settings = settings
            if self._resting is not None and not self._resting.expired():
                self._resting.reschedule(asyncio.get_running_loop().time())

    def stop(self) -> asyncio.Task[None]:
        """Returns the task, which ends soon."""
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        while True:
            before = self.settled.problem
            delay = await self._look()
            self._tell(before)
            self._looked()
            await self._rest(delay)

    async def _look(self) -> float:
        """Seconds until the next one."""
        try:
            found = await self.source.look()
            if len(found.replicas) > MOST:
                raise too_many(len(found.replicas))
            if self.settled.named(found.replicas, time.monotonic(), self._settings.hold, found.note):
                self._failures = 0
                return self._until_next(found)
        except DiscoveryError as problem:
            self.settled.failed(str(problem))
        except Exception as problem:  # whatever a source does, it is no end of looking
            if not self._failures:
                log.exception("replicas of %s: %s", self._model, self.source.describe())
            self.settled.failed(f"{type(problem).__name__}: {problem}")
        self._failures += 1
        return after_failed(self._failures, self._settings.interval, self._rng)

    def _until_next(self, found: Found) -> float:
        delay = after_good(found.ttl, self._settings.interval, self._rng)
        due = self.settled.due(self._settings.hold)
        return delay if due is None else min(delay, max(LEAST, due - time.monotonic()))

    async def _rest(self, delay: float) -> None:
        """Until it is time, or the source has news."""
        with suppress(TimeoutError):
            async with asyncio.timeout(delay) as self._resting:
                await asyncio.sleep(LEAST)
                try:
                    await self.source.news()
                except Exception:
                    log.exception("replicas of %s: %s: no more news", self._model, self.source.describe())
                    await asyncio.sleep(delay)
        self._resting = None

    def _tell(self, before: str) -> None:
        problem = self.settled.problem
        if problem and problem != before:
            log.warning("replicas of %s: %s: %s", self._model, self.source.describe(), problem)
        elif before and not problem:
            log.info("replicas of %s: %s: all is well again", self._model, self.source.describe())
