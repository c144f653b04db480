"""The memory of a GPU, as NVIDIA's driver tells it (NVML, by the package nvidia-ml-py of the extra `gpu`)."""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from typing import Any

from .base import MeterReading

MAX_PROCESSES = 256
NOT_INSTALLED = "NVML cannot be asked: nvidia-ml-py is not installed (pip install 'steelyard[gpu]')"


class Nvml:
    """The library, opened once for all GPUs, and again after it failed: a driver may have been reloaded."""

    def __init__(self) -> None:
        self._opened: Any = None
        self._lock = threading.Lock()

    def open(self) -> Any:
        with self._lock:
            if self._opened is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # an older package of that name warns that it is old
                    import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]
                pynvml.nvmlInit()
                self._opened = pynvml
            return self._opened

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
            if opened is not None:
                with suppress(Exception):
                    opened.nvmlShutdown()


class GpuMeter:
    source = "nvml"

    def __init__(self, gpu: str, nvml: Nvml) -> None:
        self._gpu = gpu  # number or UUID
        self._nvml = nvml

    def read(self) -> MeterReading:
        try:
            nvml = self._nvml.open()
            handle = self._handle(nvml)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            return MeterReading(int(memory.total), int(memory.used), "", _processes(nvml, handle))
        except ImportError:
            return MeterReading(problem=NOT_INSTALLED)
        except Exception as problem:  # NVML's own errors, a library that is not there, an answer of another version
            self._nvml.close()
            return MeterReading(problem=f"GPU {self._gpu} cannot be measured: {problem or type(problem).__name__}")

    def _handle(self, nvml: Any) -> Any:
        if self._gpu.isdecimal():
            return nvml.nvmlDeviceGetHandleByIndex(int(self._gpu))
        return nvml.nvmlDeviceGetHandleByUUID(self._gpu)


def _processes(nvml: Any, handle: Any) -> tuple[tuple[int, int], ...]:
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception:  # not supported, not permitted: then nobody knows
        return ()
    return tuple((int(p.pid), int(p.usedGpuMemory)) for p in running[:MAX_PROCESSES] if p.usedGpuMemory is not None)
