"""The memory of this process and of its accelerator, from the kernel and the driver."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from . import gpu

CACHE_SECONDS = 1.0
UNLIMITED_BYTES = 1 << 60  # or more: how version 1 of cgroups writes no limit


class ProcessMemory(NamedTuple):
    """Bytes. None: not known."""

    resident: int | None = None  # of this process
    total: int | None = None  # the limit of its cgroup, or all of the machine
    devices: tuple[gpu.GpuMemory, ...] = ()

    @property
    def scarcest(self) -> tuple[int | None, int | None]:
        """Used and total of the fullest accelerator, or without one of the process."""
        if not self.devices:
            return self.resident, self.total
        fullest = max(self.devices, key=lambda device: device.used / device.total)
        return fullest.used, fullest.total


class MemoryMeter:
    """Reads at most once a second; no caller waits for a GPU that another one reads."""

    def __init__(self, devices: Callable[[], tuple[gpu.GpuMemory, ...]] = gpu.read_gpus) -> None:
        self._devices = devices
        self._seen = ProcessMemory()
        self._at: float | None = None
        self._asking = threading.Lock()

    def read(self, now: float | None = None) -> ProcessMemory:
        now = time.monotonic() if now is None else now
        if self._at is None or not 0 <= now - self._at < CACHE_SECONDS:
            self._seen = ProcessMemory(resident_bytes(), memory_limit_bytes(), self._seen.devices)
            self._at = now  # before the GPU answers, which can take long
            if self._asking.acquire(blocking=False):
                try:
                    self._seen = self._seen._replace(devices=self._devices())
                finally:
                    self._asking.release()
        return self._seen


def resident_bytes(proc: Path = Path("/proc")) -> int | None:
    try:
        pages = int((proc / "self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None  # not Linux
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_limit_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    return min([*_limits(proc, cgroups), *_machine(proc)], default=None)


def _machine(proc: Path) -> list[int]:
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return [int(line.split()[1]) << 10]
    except (OSError, ValueError, IndexError):
        pass
    return []


def _limits(proc: Path, cgroups: Path) -> list[int]:
    """Of its cgroup and the ancestors, in both versions."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[int] = []
    for line in lines:
        number, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if number == "0" and not kinds:
            found += _upwards(cgroups, path, "memory.max")
        elif "memory" in kinds.split(","):
            found += _upwards(cgroups / "memory", path, "memory.limit_in_bytes")
    return found


def _upwards(top: Path, path: str, name: str) -> list[int]:
    """In a container the path may be the host's, of which only the top is visible."""
    found: list[int] = []
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        try:
            limit = int(top.joinpath(*parts[:depth], name).read_text())
        except (OSError, ValueError):  # not there, or `max`
            continue
        if 0 < limit < UNLIMITED_BYTES:
            found.append(limit)
    return found
