"""The card as its driver sees it, and its memory in use, looked at all the time."""

from __future__ import annotations

import threading
import time
from importlib import import_module
from typing import Any, Protocol

POLL_SECONDS = 0.01


class GpuDevice(Protocol):
    name: str
    driver: str
    torch: str
    total: int

    def used(self) -> int: ...


class NvidiaDevice:
    def __init__(self) -> None:
        self._nvml: Any = import_module("pynvml")
        self._nvml.nvmlInit()
        self._handle = self._nvml.nvmlDeviceGetHandleByIndex(0)
        self.name = str(self._nvml.nvmlDeviceGetName(self._handle))
        self.driver = str(self._nvml.nvmlSystemGetDriverVersion())
        self.torch = str(import_module("torch").__version__)
        self.total = int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).total)

    def used(self) -> int:
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)


class MemoryMonitor:
    """In a thread of its own from `with` to its end. What was used at most, and when how much."""

    def __init__(self, card: GpuDevice) -> None:
        self.card = card
        self.peak = 0
        self.seen: list[tuple[float, int]] = []  # the most of each second
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> MemoryMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        began = time.monotonic()
        while not self._over.wait(POLL_SECONDS):
            used, second = self.card.used(), float(int(time.monotonic() - began))
            self.looks += 1
            self.peak = max(self.peak, used)
            if self.seen and self.seen[-1][0] == second:
                used = max(used, self.seen.pop()[1])
            self.seen.append((second, used))
