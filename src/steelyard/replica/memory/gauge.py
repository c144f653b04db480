"""What this process holds of the device it works on, as of now: torch's CUDA allocator if the app uses it, else the
GPU's driver if it counts this process, else the kernel. Nothing here imports torch, and nothing here may fail.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from . import gpu

DEVICE_CACHE_SECONDS = 1.0  # seconds for which it is remembered which GPU is used most, and what the driver told
CONTEXT_CACHE_SECONDS = 10.0  # seconds for which the size of the CUDA context is remembered
DEFAULT_CONTEXT_BYTES = (
    768 << 20
)  # bytes that CUDA itself takes for a process, where the driver does not tell; an H200: 610 to 720 MiB
MAX_CONTEXT_BYTES = 4 << 30  # more than that is a mistake: another process of our number, in another container
PROCESS_SOURCE = "process"
_STATUS_LINES = re.compile(rb"\nVmHWM:\s+(\d+) kB\nVmRSS:\s+(\d+) kB")


class GaugeReading(NamedTuple):
    """Bytes."""

    source: str  # `cuda:0`, `nvml:0` or PROCESS
    used: int  # what objects are in: torch's allocated, or all that is resident
    peak: int | None  # of that, since the last reset; None: nobody knows
    overhead: int = 0  # what the process needs of the device besides: the CUDA context
    cached: int = 0  # what torch keeps though nothing is in it
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
        self._number: tuple[float, int] | None = None  # when it was looked up, and the GPU that is used most
        self._context: tuple[float, int, int] | None = None  # when, of which GPU, bytes
        self._driver: tuple[float, GaugeReading | None] | None = None

    def read(self) -> GaugeReading | None:
        try:
            cuda = initialized_cuda()
            return self._of_driver() or self._of_process() if cuda is None else self._of_torch(cuda)
        except Exception:  # a driver that is gone, a version that is different: then it is not known
            return None

    def reset(self) -> GaugeReading | None:
        """The peak begins anew with what is in use now, which is returned. None: there is no way to tell peaks."""
        try:
            cuda = initialized_cuda()
            return self._reset_process() if cuda is None else self._reset_torch(cuda)
        except Exception:
            return None

    @property
    def has_caching_allocator(self) -> bool:
        """Is there an allocator that keeps what is freed?"""
        return "torch" in sys.modules

    def empty_cache(self) -> None:
        """Give back what torch keeps. It may wait for the GPU: not in the loop's thread."""
        try:
            cuda = initialized_cuda()
            if cuda is not None:
                cuda.empty_cache()
        except Exception:
            return  # it is kept, then

    # ------------------------------------------------------------------ torch

    def _of_torch(self, cuda: Any) -> GaugeReading:
        number = self._most_used(cuda)
        allocated, peak, reserved = _figures(cuda, number)
        overhead = self._context_of(cuda, number)
        return GaugeReading(
            f"cuda:{number}", allocated, peak, overhead, max(0, reserved - allocated), _total(cuda, number)
        )

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
            self._can_reset = False  # not Linux, or forbidden: then the peak is that since the start
            return None
        return self._of_process()


def initialized_cuda() -> Any:
    """torch.cuda, if the app has imported torch and has used a GPU with it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _figures(cuda: Any, number: int) -> tuple[int, int, int]:
    """Allocated, its peak, reserved."""
    try:
        told = cuda.memory_stats_as_nested_dict(number)  # one call, and a tenth of the time that the others take
        allocated, reserved = told["allocated_bytes"]["all"], told["reserved_bytes"]["all"]
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
    if used is None or cuda.memory_reserved(number) != before:  # somebody allocated meanwhile
        return DEFAULT_CONTEXT_BYTES
    return used[1] - before if 0 <= used[1] - before <= MAX_CONTEXT_BYTES else DEFAULT_CONTEXT_BYTES
