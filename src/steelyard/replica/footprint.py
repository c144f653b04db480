"""The memory of this process, from all sides: what it holds, what requests need, what it gives back."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

from .gauge import Gauge
from .holding import Held, Holding, Spare
from .offers import Step, run
from .peaks import Peaks
from .ran_out import let_go

REST = 0.1  # seconds between two looks at what is held with nothing running


class Footprint:
    def __init__(self, spare: Spare | None, idle: Callable[[], bool]) -> None:
        self.gauge = Gauge()
        self.peaks = Peaks(self.gauge, lambda reading: self._holding.floor(reading, time.monotonic()))
        self.ran_out = 0  # requests that did, of memory
        self.elsewhere = False  # the work is done in other processes, so that ours says nothing of it
        self._holding = Holding(self.gauge)
        self._spare = spare
        self._idle = idle
        self._rested = 0.0

    def holds(self) -> Held:
        """As of now. With nothing running, this is also what is learned of the base."""
        if self.elsewhere:
            return Held()
        return self._holding.read(self._idle() and self.peaks.quiet, time.monotonic())

    def forget(self) -> None:
        """Another model, or another process: what was learned of the base holds no more."""
        self._holding.forget()

    def rest(self) -> None:
        """A request has ended: if it was the last, there is something to learn."""
        now = time.monotonic()
        if now - self._rested >= REST and self._idle():
            self._rested = now
            self.holds()

    @property
    def keeps(self) -> bool:
        """May there be something to trim?"""
        return self._spare is not None and self.gauge.keeps

    async def trim(self) -> None:
        """Give back what torch keeps beyond what it may, so that other processes on the GPU have the room."""
        if self._spare is not None and self._holding.keeps(self._spare):
            await asyncio.to_thread(self.gauge.empty_cache)  # which may wait for the GPU

    async def make_room(self) -> None:
        """Give back all that nobody uses."""
        await asyncio.to_thread(gc.collect)  # an exception may be a part of a ring, and hold what the request had
        await asyncio.to_thread(self.gauge.empty_cache)

    async def change(self, step: Step) -> int | None:
        """A model is loaded or unloaded; how many bytes more are in use after. None: other things ran meanwhile."""
        stretch = self.peaks.open(asked=False)
        section = self.peaks.open_section(stretch)
        before = self.gauge.read()
        try:
            await run(step)
        except Exception as problem:
            let_go(problem)
            raise
        finally:
            await self.make_room()
            after = self.gauge.read()
            self.peaks.close_section(section)
            self.peaks.close(stretch)
            self.forget()
            self.holds()
        if not stretch.alone or before is None or after is None:
            return None
        return after.used - (before.used if before.source == after.source else 0)
