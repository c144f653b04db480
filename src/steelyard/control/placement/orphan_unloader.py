"""Unloads models that we loaded and that left the configuration; otherwise they would hold memory for ever."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import NamedTuple

from ...protocols.repository import ModelPresence
from ..backoff import exponential_delay
from ..fleet.observer import FleetControl
from ..health.http_client import ConnectRefusedError, ReplicaRequestError
from .hosts import ManagedCopy
from .load_history import UnloadError
from .repository_client import UNLOADED_TIMEOUT_SECONDS, unload_and_wait

IDLE_UNLOAD_DELAY_SECONDS = 2.0  # where nothing ran at the last decision
BUSY_UNLOAD_DELAY_SECONDS = 30.0  # where something did: its requests are no longer counted
BUSY_POLL_SECONDS = 0.05  # until the server has finished another job
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 5.0, 300.0
MAX_PENDING_UNLOADS = 256  # any more stay loaded

log = logging.getLogger("steelyard.control.placement")

CopyKey = tuple[str, str]  # server and model


class UnloadFailure(NamedTuple):
    times: int
    since: float
    message: str


class OrphanUnloader:
    def __init__(self, fleet: FleetControl) -> None:
        self.failures: dict[CopyKey, UnloadFailure] = {}
        self._fleet = fleet
        self._clock = fleet.now
        self.tasks: dict[CopyKey, asyncio.Task[None]] = {}

    def schedule(self, copy: ManagedCopy, running: bool) -> None:
        """`running`: it had requests in flight at the last decision."""
        where = (copy.host.name, copy.model)
        if where in self.tasks or len(self.tasks) >= MAX_PENDING_UNLOADS:
            return
        pause = BUSY_UNLOAD_DELAY_SECONDS if running else IDLE_UNLOAD_DELAY_SECONDS
        task = self.tasks[where] = asyncio.get_running_loop().create_task(self._unload_until_done(copy, pause))
        task.add_done_callback(partial(self._ended, where))

    def cancel(self, copy: ManagedCopy) -> None:
        if (task := self.tasks.pop((copy.host.name, copy.model), None)) is not None:
            task.cancel()
            self.failures.pop((copy.host.name, copy.model), None)

    async def close(self) -> None:
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, where: CopyKey, task: asyncio.Task[None]) -> None:
        if self.tasks.get(where) is task:
            del self.tasks[where]
            self.failures.pop(where, None)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("an unload of %s at %s failed unexpectedly", where[1], where[0], exc_info=problem)

    async def _unload_until_done(self, copy: ManagedCopy, pause: float) -> None:
        where = (copy.host.name, copy.model)
        while True:
            await asyncio.sleep(pause)
            while copy.host.busy:
                await asyncio.sleep(BUSY_POLL_SECONDS)
            try:
                return await self._unload(copy)
            except UnloadError as problem:
                known = self.failures.get(where, UnloadFailure(0, self._clock(), ""))
                self.failures[where] = known._replace(times=known.times + 1, message=str(problem))
                pause = exponential_delay(FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, known.times + 1)

    async def _unload(self, copy: ManagedCopy) -> None:
        copy.host.busy = copy.host.discard_poll = True
        where = f"{copy.model}, which left the configuration, at {copy.host.name}"
        try:
            async with asyncio.timeout(UNLOADED_TIMEOUT_SECONDS):  # a load that has begun finishes first
                entry = await copy.repository.wait_until(ModelPresence.READY, ModelPresence.ABSENT)
            if entry.presence is ModelPresence.READY:
                await unload_and_wait(copy.repository, where)
                self._fleet.record("placement", "unloaded: it left the configuration", *copy.key)
        except ConnectRefusedError:
            return  # the server is gone, and the model with it
        except TimeoutError:
            raise UnloadError(f"{where} was not unloaded: what became of its load is not known") from None
        except ReplicaRequestError as problem:
            raise UnloadError(f"{where} was not unloaded: {problem}") from None
        finally:
            copy.host.busy = False
            copy.host.poll_by(self._clock())
