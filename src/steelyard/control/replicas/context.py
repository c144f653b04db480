"""What the replica sets of all models share: settings, names, and the tasks that start and stop replicas."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...config import AutoscaleConfig, Config
from ...runtimes import Runtime
from ..fleet.observer import FleetControl
from ..memory import MemoryAccounting
from ..placement.load_history import LoadTimes
from .managed_replica import ManagedReplica

START_ANSWER_SECONDS = 5.0  # for starts under way at shutdown
_NUMBERED = re.compile(r"p([1-9][0-9]{0,17})")
NO_AUTOSCALE = AutoscaleConfig()

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
        self._run(self._ends, replica.runtime.stop(*replica.key, timeout=0.0))

    def cancel(self, replica: ManagedReplica) -> None:
        if replica.operation is not None:
            replica.operation.cancel()

    async def finish(self, seconds: float) -> None:
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
        log.error("a start or stop of a replica failed unexpectedly", exc_info=problem)


class ReplicaIds:
    """Names of started replicas: p1, p2, …, each used once in a supervisor's life."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # by model

    def used(self, model: str, id: str) -> None:
        if match := _NUMBERED.fullmatch(id):
            self._last[model] = max(self._last.get(model, 0), int(match[1]))

    def was_used(self, model: str, id: str) -> bool:
        match = _NUMBERED.fullmatch(id)
        return match is not None and int(match[1]) <= self._last.get(model, 0)

    def next(self, model: str, taken: Container[str]) -> str:
        number = self._last.get(model, 0) + 1
        while f"p{number}" in taken:
            number += 1
        self._last[model] = number
        return f"p{number}"


def smallest_free(taken: Iterable[int]) -> int:
    there = set(taken)
    return next(number for number in range(len(there) + 1) if number not in there)


@dataclass(slots=True)
class ControllerContext:
    fleet: FleetControl
    memory: MemoryAccounting
    runtimes: dict[str, Runtime]  # by kind
    clock: Callable[[], float]
    operations: ReplicaOperations
    rooms: Callable[[], Mapping[str, int]]  # bytes free on devices, less those reserved for starting replicas
    replicas_per_device: Callable[[], Mapping[str, int]]
    config: Config = field(default_factory=lambda: Config(models={}))
    load_times: LoadTimes = field(default_factory=LoadTimes)
    ids: ReplicaIds = field(default_factory=ReplicaIds)
    paused: bool = False  # nothing is started
    silent: bool = False  # nor are members published
    keep_adopted: bool = False  # adopted replicas run on: workers of the last supervisor still use them

    def listed(self, model: str) -> set[str]:
        config = self.config.models.get(model)
        return {replica.name for replica in config.replicas} if config is not None else set()

    def declared(self, model: str) -> int:
        return self.config.models[model].memory.footprint if model in self.config.models else 0

    def gpu(self, device: str) -> str:
        return self.config.devices[device].gpu if device in self.config.devices else ""

    def price(self, model: str, device: str) -> float:
        """Per hour."""
        place = self.config.devices.get(device)
        return place.hourly_cost if place is not None and place.hourly_cost else self._autoscale(model).hourly_cost

    def cold_start(self, model: str) -> tuple[float, bool]:
        """Seconds, and whether that was measured."""
        configured = float(self._autoscale(model).cold_start)
        return self.load_times.seconds(model, configured), self.load_times.is_measured(model)

    def _autoscale(self, model: str) -> AutoscaleConfig:
        config = self.config.models.get(model)
        return config.autoscale if config is not None and config.autoscale is not None else NO_AUTOSCALE
