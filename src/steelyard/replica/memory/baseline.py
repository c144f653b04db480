"""What this process holds of its device: now, and with nothing running."""

from __future__ import annotations

import math
from typing import NamedTuple

from .gauge import PROCESS_SOURCE, GaugeReading, MemoryGauge

WINDOW_SECONDS = 300.0  # the least of the last one to two counts


class HeldMemory(NamedTuple):
    """Bytes. None: not known, or not yet."""

    held: int | None = None
    base: int | None = None


class CacheAllowance(NamedTuple):
    """What torch may keep unused."""

    bytes: int = 0
    share: float = 0.0  # of the GPU, in place of bytes

    def of(self, total: int | None) -> float:
        if not self.share:
            return self.bytes
        return math.inf if total is None else self.share * total


class WindowedMinimum:
    def __init__(self) -> None:
        self._began = 0.0
        self._before: int | None = None  # of the window before
        self._least: int | None = None

    def see(self, value: int, now: float) -> None:
        if self._least is None:
            self._began, self._least = now, value
        elif now - self._began >= WINDOW_SECONDS:
            self._before = self._least if now - self._began < 2 * WINDOW_SECONDS else None
            self._began, self._least = now, value
        else:
            self._least = min(self._least, value)

    @property
    def value(self) -> int | None:
        found = [one for one in (self._before, self._least) if one is not None]
        return min(found, default=None)


class MemoryBaseline:
    def __init__(self, gauge: MemoryGauge) -> None:
        self._gauge = gauge
        self._source = ""
        self._lowest = WindowedMinimum()

    def read(self, idle: bool, now: float) -> HeldMemory:
        """`idle`: nothing runs, so this is the base."""
        reading = self._gauge.read()
        if reading is None:
            return HeldMemory()
        base = self._seen(reading, now if idle else None)
        return HeldMemory(reading.held, base if base is None else min(base, reading.held))

    def floor(self, reading: GaugeReading, now: float) -> int:
        """What was in use before a request that runs alone. Of a process this is less than now if malloc kept memory of
        earlier requests: this one reuses it, a concurrent one could not."""
        least = self._seen(reading, now)
        return reading.used if least is None or reading.source != PROCESS_SOURCE else min(least, reading.used)

    def _seen(self, reading: GaugeReading, idle_at: float | None) -> int | None:
        if reading.source != self._source:  # a GPU was opened meanwhile
            self._source, self._lowest = reading.source, WindowedMinimum()
        if idle_at is not None:
            self._lowest.see(reading.base, idle_at)
        return self._lowest.value

    def forget(self) -> None:
        self._lowest = WindowedMinimum()

    def exceeds_allowance(self, spare: CacheAllowance) -> bool:
        reading = self._gauge.read()
        return reading is not None and reading.cached > spare.of(reading.total)
