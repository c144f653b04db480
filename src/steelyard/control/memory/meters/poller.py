"""Measures the devices of this machine about once a second, each in a thread of its own: a driver that hangs blocks
nothing, not even the end of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from ....config import DeviceConfig
from ...backoff import jittered
from .devices import CgroupMeter, GpuMeter, Meter, MeterReading, Nvml

POLL_INTERVAL_SECONDS = 1.0
EAGER_READS = 3  # at first, without a pause
FAILURE_RETRY_SECONDS = 5.0
HUNG_AFTER_SECONDS = 10.0  # a read that takes longer is reported
CLOSE_TIMEOUT_SECONDS = 1.0  # for reads under way

ThreadStarter = Callable[[Callable[[], None]], None]


class PolledReading(NamedTuple):
    device: str
    reading: MeterReading
    began: float


class MeterPoller:
    def __init__(self, rng: Random | None = None, start: ThreadStarter | None = None) -> None:
        """`start` runs a function in another thread."""
        self._rng = rng or Random()
        self._start = start or _in_a_thread
        self._nvml = Nvml()
        self._watches: dict[str, _PolledDevice] = {}

    def set_devices(self, devices: Mapping[str, DeviceConfig], now: float) -> None:
        wanted = {name: device for name, device in devices.items() if device.gpu or device.cgroup}
        for name in [n for n, watch in self._watches.items() if n not in wanted or not watch.is_for(wanted[n])]:
            del self._watches[name]
        for name, device in wanted.items():
            if name not in self._watches:
                self._watches[name] = _PolledDevice(device, self._meter(device), now)

    def _meter(self, device: DeviceConfig) -> Meter:
        return GpuMeter(device.gpu, self._nvml) if device.gpu else CgroupMeter(device.cgroup)

    def source(self, device: str) -> str:
        """Empty: it is not measured here."""
        watch = self._watches.get(device)
        return watch.meter.source if watch is not None else ""

    def tick(self, now: float) -> list[PolledReading]:
        """Begins what is due; returns the readings since the last time."""
        seen = []
        for name, watch in self._watches.items():
            if (look := watch.take(now)) is not None:
                seen.append(PolledReading(name, look, watch.began))
                watch.due = now + self._pause(watch, look)
            if not watch.under_way and now >= watch.due:
                watch.begin(self._start, now)
        return seen

    def _pause(self, watch: _PolledDevice, look: MeterReading) -> float:
        if look.used is None:
            return FAILURE_RETRY_SECONDS
        watch.reads += 1
        return 0.0 if watch.reads < EAGER_READS else jittered(POLL_INTERVAL_SECONDS, self._rng)

    async def close(self) -> None:
        watches, self._watches = self._watches, {}
        for _ in range(int(CLOSE_TIMEOUT_SECONDS / 0.01)):
            if not any(watch.under_way for watch in watches.values()):
                self._nvml.close()
                return
            await asyncio.sleep(0.01)


class _PolledDevice:
    def __init__(self, device: DeviceConfig, meter: Meter, now: float) -> None:
        self.meter = meter
        self.due = self.began = now
        self.reads = 0  # that succeeded
        self._device = device
        self._lost = False
        self._result: MeterReading | None = None
        self.under_way = False

    def is_for(self, device: DeviceConfig) -> bool:
        return (device.gpu, device.cgroup) == (self._device.gpu, self._device.cgroup)

    def begin(self, start: ThreadStarter, now: float) -> None:
        self.began, self.under_way, self._lost = now, True, False
        try:
            start(self._look)
        except RuntimeError as problem:  # no thread left
            self._result, self.under_way = MeterReading(problem=f"it cannot be measured: {problem}"), False

    def _look(self) -> None:
        self._result = self.meter.read()
        self.under_way = False

    def take(self, now: float) -> MeterReading | None:
        if not self.under_way:  # only then is the other thread done with the result
            look, self._result = self._result, None
            return look
        if now - self.began <= HUNG_AFTER_SECONDS or self._lost:
            return None
        self._lost = True
        return MeterReading(problem=f"it does not answer: a reading began {now - self.began:.0f} s ago")


def _in_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="steelyard-meter", daemon=True).start()
