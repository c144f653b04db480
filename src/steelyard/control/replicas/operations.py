"""Starts and stops of replicas as tasks: at most one per replica, all awaited at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from .managed_replica import ManagedReplica

START_ANSWER_SECONDS = 5.0  # for starts under way at shutdown

log = logging.getLogger("steelyard.control.replicas")


class ReplicaOperations:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._starts: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()

    def start(self, replica: ManagedReplica, operation: Coroutine[Any, Any, None]) -> None:
        replica.operation = self._run(self._starts, operation)

    def stop(self, replica: ManagedReplica, operation: Coroutine[Any, Any, None]) -> None:
        replica.operation = self._run(self._ends, operation)

    def kill(self, replica: ManagedReplica) -> None:
        """Ends the stop that is under way."""
        self._run(self._ends, replica.runtime.stop(*replica.key, patience=0.0))

    def cancel(self, replica: ManagedReplica) -> None:
        if replica.operation is not None:
            replica.operation.cancel()

    async def finish(self, seconds: float) -> None:
        """Waits for everything under way, at most so long."""
        until = self._clock() + seconds
        while (left := self._starts | self._ends) and (rest := until - self._clock()) > 0.0:
            await asyncio.wait(left, timeout=rest, return_when=asyncio.FIRST_COMPLETED)

    async def finish_starts(self) -> None:
        """Waits for starts under way, so that a successor finds their processes."""
        if self._starts:
            await asyncio.wait(self._starts, timeout=START_ANSWER_SECONDS)

    async def close(self) -> None:
        """Starts may finish first: a cancelled one may leave an unknown process behind."""
        for task in self._ends:
            task.cancel()
        await self.finish_starts()
        left = self._starts | self._ends
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _run(self, kind: set[asyncio.Task[None]], operation: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(operation)
        kind.add(task)
        task.add_done_callback(kind.discard)
        task.add_done_callback(_log_failure)
        return task


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (problem := task.exception()) is not None:
        log.error("a start or stop of a replica went wrong", exc_info=problem)
