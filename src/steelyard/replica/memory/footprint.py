"""The memory of this process: what it holds, what requests need, what it gives back."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

from ..loadable_models import LoadStep, run_step
from .baseline import CacheAllowance, HeldMemory, MemoryBaseline
from .gauge import MemoryGauge
from .out_of_memory import clear_frames
from .peaks import PeakTracker

IDLE_READ_INTERVAL_SECONDS = 0.1


class Footprint:
    def __init__(self, spare: CacheAllowance | None, idle: Callable[[], bool]) -> None:
        self.gauge = MemoryGauge()
        self.peaks = PeakTracker(self.gauge, lambda reading: self._holding.floor(reading, time.monotonic()))
        self.out_of_memory_count = 0
        self.in_other_process = False  # the model runs elsewhere: our memory tells nothing
        self._holding = MemoryBaseline(self.gauge)
        self._spare = spare
        self._idle = idle
        self._rested = 0.0

    def read(self) -> HeldMemory:
        """With nothing running, also learns the base."""
        if self.in_other_process:
            return HeldMemory()
        return self._holding.read(self._idle() and self.peaks.is_idle, time.monotonic())

    def forget(self) -> None:
        """Another model or process: another base."""
        self._holding.forget()

    def learn_when_idle(self) -> None:
        now = time.monotonic()
        if now - self._rested >= IDLE_READ_INTERVAL_SECONDS and self._idle():
            self._rested = now
            self.read()

    @property
    def may_trim(self) -> bool:
        return self._spare is not None and self.gauge.has_caching_allocator

    async def trim(self) -> None:
        """Gives back what torch keeps beyond its allowance, to other processes on the GPU."""
        if self._spare is not None and self._holding.exceeds_allowance(self._spare):
            await asyncio.to_thread(self.gauge.empty_cache)  # which may wait for the GPU

    async def make_room(self) -> None:
        """Gives back all that is unused."""
        await asyncio.to_thread(gc.collect)  # an exception in a cycle may hold what the request had
        await asyncio.to_thread(self.gauge.empty_cache)

    async def measure_step(self, step: LoadStep) -> int | None:
        """Bytes that a load or unload added. None: other work ran meanwhile."""
        stretch = self.peaks.open(asked=False)
        section = self.peaks.open_section(stretch)
        before = self.gauge.read()
        try:
            await run_step(step)
        except Exception as problem:
            clear_frames(problem)
            raise
        finally:
            await self.make_room()
            after = self.gauge.read()
            self.peaks.close_section(section)
            self.peaks.close(stretch)
            self.forget()
            self.read()
        if not stretch.alone or before is None or after is None:
            return None
        return after.used - (before.used if before.source == after.source else 0)
