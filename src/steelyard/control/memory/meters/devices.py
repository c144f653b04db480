"""Meters for the devices of this machine: a GPU by NVML, a cgroup by its files.

`read` never raises, and may take long: it is not for the loop's thread. NVML comes with the package nvidia-ml-py of the
extra `gpu`.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ....link.cgroup import CGROUP_ROOT, find_cgroup, memory_limits, memory_used

NOT_INSTALLED = "NVML cannot be asked: nvidia-ml-py is not installed (pip install nvidia-ml-py)"


class MeterReading(NamedTuple):
    """Bytes; None: unknown."""

    capacity: int | None = None
    used: int | None = None  # by all
    problem: str = ""  # why something is unknown, in words


class CgroupMeter:
    source = "cgroup"

    def __init__(self, path: str, mounted: Path = CGROUP_ROOT) -> None:
        self._path = path
        self._mounted = mounted

    def read(self) -> MeterReading:
        """A limit of any group around it holds too, and others use some of that."""
        try:
            found = find_cgroup(self._path, self._mounted)
            if found is None:
                raise ValueError("there is none that counts memory")
            folder, version = found
            in_use = memory_used(folder, version)
            known = [(limit, limit - memory_used(level, version)) for level, limit in memory_limits(folder, version)]
        except (OSError, ValueError) as problem:
            return MeterReading(problem=f"the cgroup {self._path} cannot be measured: {problem}")
        if not known:
            what = f"the cgroup {self._path} has no limit of memory, so its size is not known"
            return MeterReading(used=in_use, problem=what)
        capacity = min(limit for limit, _ in known)
        free = min(free for _, free in known)
        return MeterReading(capacity, max(in_use, capacity - free))


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
            return MeterReading(int(memory.total), int(memory.used))
        except ImportError:
            return MeterReading(problem=NOT_INSTALLED)
        except Exception as problem:  # NVML's own errors, a library that is not there, an answer of another version
            self._nvml.close()
            return MeterReading(problem=f"GPU {self._gpu} cannot be measured: {problem or type(problem).__name__}")

    def _handle(self, nvml: Any) -> Any:
        if self._gpu.isdecimal():
            return nvml.nvmlDeviceGetHandleByIndex(int(self._gpu))
        return nvml.nvmlDeviceGetHandleByUUID(self._gpu)


Meter = CgroupMeter | GpuMeter
