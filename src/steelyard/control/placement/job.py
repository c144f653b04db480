"""One placement job: evicts models to make room, then loads one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...core.replica import Event
from ...link.messages import StartProgress
from ...protocols.repository import ModelPresence, OperationProgress
from ..fleet.observer import FleetControl
from ..health.http_client import ReplicaRequestError
from ..memory import MemoryAccounting
from .hosts import CopyPhase, ManagedCopy
from .load_history import DrainTimeoutError, LoadError, LoadTimeoutError, LoadTimes, NoMemoryError
from .repository_client import unload_and_wait

MAX_DRAIN_SECONDS = 60.0  # for requests in flight; `wait_drained` may give up earlier
MAX_RESERVE_SECONDS = 5.0  # until freed memory shows in the ledger; longer where servers are scraped rarely
RESERVE_POLL_SECONDS = 0.05


class PlacementJob:
    """Each copy ends resident, absent, or UNKNOWN until the server's index was read. Memory is released only when its
    model is gone."""

    def __init__(
        self,
        fleet: FleetControl,
        memory: MemoryAccounting,
        times: LoadTimes,
        coming: ManagedCopy | None,
        going: Sequence[ManagedCopy],
        reason: str,
    ) -> None:
        self.load = coming
        self.evict = going
        self.reason = reason
        self.began = fleet.now()
        self.load_started_at: float | None = None
        self._fleet = fleet
        self._memory = memory
        self._times = times
        self._clock = fleet.now

    @property
    def primary(self) -> ManagedCopy:
        return self.load if self.load is not None else self.evict[0]

    @property
    def copies(self) -> list[ManagedCopy]:
        return [*self.evict, *([self.load] if self.load is not None else [])]

    @property
    def stage(self) -> str:
        phases = {copy.phase for copy in self.evict}
        for phase in (CopyPhase.DRAINING, CopyPhase.UNLOADING):
            if phase in phases:
                return str(phase.value)
        return "loading" if self.load_started_at is not None else "waiting for room"

    async def run(self) -> None:
        try:
            self._announce()
            await self._drain()
            await self._unload()
            if self.load is not None:
                await self._reserve(self.load)
                await self._load(self.load)
        except BaseException as problem:  # a cancellation too
            self._abandon(str(problem) or "given up")
            raise

    def _announce(self) -> None:
        if self.load is not None:
            model = self.load.model
            self._fleet.broadcast(StartProgress(model, self._times.seconds(model, float(self.load.settings.load_time))))

    async def _drain(self) -> None:
        for copy in self.evict:
            self._set_phase(copy, CopyPhase.DRAINING)
            reason = f"makes room for {self.load.model}" if self.load is not None else self.reason
            self._fleet.transition(copy.key, Event.UNLOAD, reason)
        done = await asyncio.gather(*map(self._wait_drained, self.evict))
        if still := [copy for copy, is_done in zip(self.evict, done, strict=True) if not is_done]:
            names = ", ".join(f"{copy.model} at {copy.host.name}" for copy in still)
            raise DrainTimeoutError(f"requests still run on {names}, which should make room")

    async def _wait_drained(self, copy: ManagedCopy) -> bool:
        try:
            return await asyncio.wait_for(self._fleet.wait_drained(copy.key), MAX_DRAIN_SECONDS)
        except TimeoutError:
            return False

    async def _unload(self) -> None:
        if not self.evict:
            return
        done = await asyncio.gather(*map(self._unload_one, self.evict), return_exceptions=True)
        for problem in filter(None, done):
            raise problem
        # Not earlier: between release and reserve, others could take the memory.
        for copy in self.evict:
            if not copy.removed:
                copy.release(self._memory)

    async def _unload_one(self, copy: ManagedCopy) -> None:
        self._set_phase(copy, CopyPhase.UNLOADING)
        await unload_and_wait(copy.repository, f"{copy.model} at {copy.host.name}")
        copy.loaded_by_us = False
        self._set_phase(copy, CopyPhase.ABSENT)

    async def _reserve(self, copy: ManagedCopy) -> None:
        amount = self._memory.footprint(copy.model)
        scrapes = max(1.0, *(each.target.load.interval / 4.0 for each in self.copies))
        until = self._clock() + MAX_RESERVE_SECONDS * scrapes
        while not self._memory.reserve(copy.key, amount):
            if self._clock() >= until:
                raise NoMemoryError(f"{copy.host.device or copy.host.name} has no room for {copy.model} any more")
            await asyncio.sleep(RESERVE_POLL_SECONDS)
        copy.reserved, copy.reserved_bytes = True, amount
        self._set_phase(copy, CopyPhase.RESERVED)

    async def _load(self, copy: ManagedCopy) -> None:
        self.load_started_at = self._clock()
        self._set_phase(copy, CopyPhase.LOADING)
        copy.loaded_by_us = True
        self._fleet.transition(copy.key, Event.LOAD, self.reason or "it is wanted")
        self._announce()
        limit = float(copy.settings.load_timeout)
        try:
            async with asyncio.timeout(limit):
                await self._loaded(copy, limit)
        except TimeoutError:
            raise LoadTimeoutError(f"{copy.model} was not loaded within {limit:g} s at {copy.host.name}") from None
        except ReplicaRequestError as problem:
            raise LoadError(f"{copy.model} was not loaded at {copy.host.name}: {problem}") from None
        if copy.removed:
            return
        self._times.learn(copy.model, self._clock() - self.load_started_at)
        self._set_phase(copy, CopyPhase.RESIDENT)
        self._memory.resident(copy.key)
        self._fleet.reprobe(copy.key)

    async def _loaded(self, copy: ManagedCopy, limit: float) -> None:
        said = await copy.repository.load(limit + 1.0)  # ended by the timeout around it
        if said.progress is OperationProgress.UNDER_WAY:
            entry = await copy.repository.wait_until(ModelPresence.READY, ModelPresence.ABSENT)
            if entry.presence is ModelPresence.READY:
                return
            reason = entry.reason or "it is not among its models"
            said = said._replace(progress=OperationProgress.REFUSED, reason=reason)
        if said.progress is OperationProgress.REFUSED:
            raise LoadError(f"{copy.model} was not loaded at {copy.host.name}: {said.reason}")

    def _abandon(self, reason: str) -> None:
        for copy in self.copies:
            if copy.removed:
                continue
            match copy.phase:
                case CopyPhase.DRAINING if copy.reserved:  # it was not unloaded yet: it serves again
                    self._set_phase(copy, CopyPhase.RESIDENT)
                    reason = "it stays: the load that it made room for was given up"
                    self._fleet.transition(copy.key, Event.LOAD, reason)
                    self._fleet.reprobe(copy.key)
                case CopyPhase.ABSENT | CopyPhase.RESERVED:
                    copy.release(self._memory)
                    self._set_phase(copy, CopyPhase.ABSENT)
                case CopyPhase.DRAINING | CopyPhase.UNLOADING | CopyPhase.LOADING:
                    self._set_phase(copy, CopyPhase.UNKNOWN)
                    self._fleet.transition(copy.key, Event.UNLOAD, reason)

    def _set_phase(self, copy: ManagedCopy, phase: CopyPhase) -> None:
        copy.set_phase(phase, self._clock())
