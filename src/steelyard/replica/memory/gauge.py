"""What this process holds of its device now: by torch's CUDA allocator if the app uses it, else by the GPU's driver if
it counts this process, else by the kernel. Never imports torch, never fails.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from . import gpu

DEVICE_CACHE_SECONDS = 1.0  # of the GPU used most, and of the driver's figures
CONTEXT_CACHE_SECONDS = 10.0
DEFAULT_CONTEXT_BYTES = 768 << 20  # of a CUDA context, where the driver does not tell; on an H200 610 to 720 MiB
MAX_CONTEXT_BYTES = 4 << 30  # more is of another process, with our number in another container
PROCESS_SOURCE = "process"
_STATUS_LINES = re.compile(rb"\nVmHWM:\s+(\d+) kB\nVmRSS:\s+(\d+) kB")


class GaugeReading(NamedTuple):
    """Bytes."""

    source: str  # `cuda:0`, `nvml:0` or PROCESS
    used: int  # torch's allocated, or all that is resident
    peak: int | None  # of that, since the last reset; None: not known
    overhead: int = 0  # the CUDA context
    cached: int = 0  # what torch keeps unused
    total: int | None = None  # of the device, where it is a GPU

    @property
    def base(self) -> int:
        return self.used + self.overhead

    @property
    def held(self) -> int:
        return self.used + self.overhead + self.cached


class MemoryGauge:
    """May be read from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, proc: Path = Path("/proc")) -> None:
        self._clock = clock
        self._status, self._clear = str(proc / "self/status"), str(proc / "self/clear_refs")
        self._can_reset = True
        self._number: tuple[float, int] | None = None  # when, and the GPU used most
        self._context: tuple[float, int, int] | None = None  # when, of which GPU, bytes
        self._driver: tuple[float, GaugeReading | None] | None = None

    def read(self) -> GaugeReading | None:
        try:
            cuda = gpu.initialized_cuda()
            return self._of_driver() or self._of_process() if cuda is None else self._of_torch(cuda)
        except Exception:  # a driver that is gone, another version
            return None

    def reset(self) -> GaugeReading | None:
        """Starts a new peak from what is in use now, which it returns. None: peaks are not known."""
        try:
            cuda = gpu.initialized_cuda()
            return self._reset_process() if cuda is None else self._reset_torch(cuda)
        except Exception:
            return None

    @property
    def has_caching_allocator(self) -> bool:
        return "torch" in sys.modules

    def empty_cache(self) -> None:
        """May wait for the GPU: not in the loop's thread."""
        with suppress(Exception):
            cuda = gpu.initialized_cuda()
            if cuda is not None:
                cuda.empty_cache()

    # ------------------------------------------------------------------ torch

    def _of_torch(self, cuda: Any) -> GaugeReading:
        number = self._most_used(cuda)
        allocated, peak, reserved = _figures(cuda, number)
        overhead, cached = self._context_of(cuda, number), max(0, reserved - allocated)
        return GaugeReading(f"cuda:{number}", allocated, peak, overhead, cached, _total(cuda, number))

    def _reset_torch(self, cuda: Any) -> GaugeReading:
        reading, number = self._of_torch(cuda), self._most_used(cuda)
        gpu.remember_peak(number, reading.peak or 0)
        cuda.reset_peak_memory_stats(number)
        return reading

    def _most_used(self, cuda: Any) -> int:
        now = self._clock()
        if self._number is None or now - self._number[0] >= DEVICE_CACHE_SECONDS:
            count = cuda.device_count()
            most = max(range(count), key=cuda.memory_reserved) if count > 1 else 0
            if count > 1 and cuda.memory_reserved(most) == 0:
                most = cuda.current_device()
            self._number = now, most
        return self._number[1]

    def _context_of(self, cuda: Any, number: int) -> int:
        now, known = self._clock(), self._context
        if known is None or known[1] != number or now - known[0] >= CONTEXT_CACHE_SECONDS:
            self._context = known = now, number, _context(cuda, number)
        return known[2]

    # ------------------------------------------------------------------ the driver, and the kernel

    def _of_driver(self) -> GaugeReading | None:
        now = self._clock()
        if self._driver is None or now - self._driver[0] >= DEVICE_CACHE_SECONDS:
            found = gpu.process_gpu_bytes()
            self._driver = now, None if found is None else GaugeReading(found[0], found[1], None)
        return self._driver[1]

    def _of_process(self) -> GaugeReading:
        with open(self._status, "rb", buffering=0) as file:
            found = _STATUS_LINES.search(file.read())
        assert found is not None
        return GaugeReading(PROCESS_SOURCE, int(found[2]) << 10, int(found[1]) << 10 if self._can_reset else None)

    def _reset_process(self) -> GaugeReading | None:
        if self._of_driver() is not None or not self._can_reset:
            return None
        try:
            with open(self._clear, "wb", buffering=0) as file:
                file.write(b"5")
        except OSError:
            self._can_reset = False  # not Linux, or forbidden
            return None
        return self._of_process()


def _figures(cuda: Any, number: int) -> tuple[int, int, int]:
    """Allocated, its peak, reserved."""
    try:
        stats = cuda.memory_stats_as_nested_dict(number)  # ten times as fast as the calls below
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return int(allocated["current"]), int(allocated["peak"]), int(reserved["current"])
    except (AttributeError, KeyError, TypeError):
        return cuda.memory_allocated(number), cuda.max_memory_allocated(number), cuda.memory_reserved(number)


def _total(cuda: Any, number: int) -> int | None:
    try:
        return int(cuda.get_device_properties(number).total_memory)
    except Exception:
        return None


def _context(cuda: Any, number: int) -> int:
    before = cuda.memory_reserved(number)
    used = gpu.process_gpu_bytes(cuda, number)
    if used is None or cuda.memory_reserved(number) != before:  # another thread allocated meanwhile
        return DEFAULT_CONTEXT_BYTES
    return used[1] - before if 0 <= used[1] - before <= MAX_CONTEXT_BYTES else DEFAULT_CONTEXT_BYTES
