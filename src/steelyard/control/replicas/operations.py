"""Starts, drains and stops as tasks: at most one per replica, all awaited at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ...runtimes import Instance, ReplicaSpec, ReplicaStartError
from ..fleet.observer import FleetControl
from .lifecycle import PhaseEvent, ReplicaPhase
from .managed_replica import ManagedReplica

STOP_RETRY_SECONDS, MAX_STOP_RETRY_SECONDS = 1.0, 60.0  # after a failed stop; doubled each time
DRAIN_SLACK_SECONDS = 5.0  # beyond the time a drain has
START_ANSWER_SECONDS = 5.0  # for starts under way at shutdown

log = logging.getLogger("steelyard.control.replicas")


class ReplicaOperations:
    def __init__(self, fleet: FleetControl, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._starts: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()

    def start(
        self,
        replica: ManagedReplica,
        order: ReplicaSpec,
        began: Callable[[ManagedReplica, Instance], None],
        refused: Callable[[ManagedReplica, str, str], None],
    ) -> None:
        self._run(self._starts, replica, self._start(replica, order, began, refused))

    def stop(
        self,
        replica: ManagedReplica,
        drain: float,
        rest: float,
        patience: float,
        gone: Callable[[ManagedReplica], None],
    ) -> None:
        """A draining replica is drained first, and left alone for `rest` seconds."""
        self._run(self._ends, replica, self._end(replica, drain, rest, patience, gone))

    def kill(self, replica: ManagedReplica) -> None:
        """Ends the stop that is under way."""
        task = self._loop.create_task(replica.runtime.stop(*replica.key, patience=0.0))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)
        task.add_done_callback(_log_failure)

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
        if self._starts:
            await asyncio.wait(self._starts, timeout=START_ANSWER_SECONDS)
        left = self._starts | self._ends
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # ------------------------------------------------------------------

    def _run(
        self, kind: set[asyncio.Task[None]], replica: ManagedReplica, operation: Coroutine[Any, Any, None]
    ) -> None:
        task = replica.operation = self._loop.create_task(operation)
        kind.add(task)
        task.add_done_callback(kind.discard)
        task.add_done_callback(_log_failure)

    async def _start(
        self,
        replica: ManagedReplica,
        order: ReplicaSpec,
        began: Callable[[ManagedReplica, Instance], None],
        refused: Callable[[ManagedReplica, str, str], None],
    ) -> None:
        try:
            instance = await replica.runtime.start(order)
        except ReplicaStartError as problem:
            refused(replica, problem.reason, str(problem))
        except Exception as problem:
            log.exception("a start of %s/%s went wrong", *replica.key)
            with suppress(Exception):  # it may have left something behind
                await replica.runtime.stop(*replica.key, patience=START_ANSWER_SECONDS)
            refused(replica, "failed", f"{type(problem).__name__}: {problem}")
        else:
            began(replica, instance)

    async def _end(
        self,
        replica: ManagedReplica,
        drain: float,
        rest: float,
        patience: float,
        gone: Callable[[ManagedReplica], None],
    ) -> None:
        if replica.phase is ReplicaPhase.DRAINING:
            await self._drained(replica, drain)
            await asyncio.sleep(rest)
            replica.transition(PhaseEvent.STOP, self._clock())
        pause = STOP_RETRY_SECONDS
        while not await self._stopped(replica, patience, pause):
            await asyncio.sleep(pause)
            pause = min(MAX_STOP_RETRY_SECONDS, 2.0 * pause)
        gone(replica)

    async def _drained(self, replica: ManagedReplica, seconds: float) -> None:
        drained = False
        try:
            async with asyncio.timeout(seconds + DRAIN_SLACK_SECONDS):
                drained = await self._fleet.wait_drained(replica.key, seconds)
        except TimeoutError:
            pass
        except Exception:
            log.exception("a drain of %s/%s went wrong", *replica.key)
        if not drained:
            what = f"stopped though requests may still run there, after {seconds:g} s"
            self._fleet.record("scaling", what, *replica.key, level=logging.WARNING)

    async def _stopped(self, replica: ManagedReplica, patience: float, pause: float) -> bool:
        try:
            await replica.runtime.stop(*replica.key, patience=patience)
        except Exception as problem:
            what = f"could not be stopped, tried again in {pause:g} s: {type(problem).__name__}: {problem}"
            self._fleet.record("scaling", what, *replica.key, level=logging.ERROR)
            return False
        return True


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (problem := task.exception()) is not None:
        log.error("a start or stop of a replica went wrong", exc_info=problem)
