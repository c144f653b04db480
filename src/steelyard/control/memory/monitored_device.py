"""A monitored device: its size and the source of it, its use, and its failures."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from ...config import DeviceConfig as Settings
from ...core.memory.ledger import Device
from ...protocols.load import EngineLoad
from ..fleet.registry import ReplicaKey
from .external_usage import ExternalUsage, OvercountDetector
from .meters.devices import MeterReading

REPORT_TTL_SECONDS = 10.0  # seconds for which what a replica says of its device holds
MIN_SAMPLE_SPACING_SECONDS = 1.0  # seconds between two looks that count as two
MAX_REPORTING_REPLICAS = 1024  # replicas of a device whose words are kept


class ReportedMemory(NamedTuple):
    """By a replica, of its device."""

    total: int | None
    used: int | None
    at: float


class MonitoredDevice:
    def __init__(self, device: Device, settings: Settings, meter: str) -> None:
        self.device = device
        self.settings = settings
        self.meter = meter  # nvml, cgroup; empty: it is not measured here
        self.external = ExternalUsage()
        self.overcount = OvercountDetector()
        self.measured: int | None = None  # its size
        self.used: int | None = None
        self.looked = -inf  # when
        self.problem = ""
        self.ran_out = 0
        self.last_ran_out = -inf
        self._said: dict[ReplicaKey, ReportedMemory] = {}
        self._by_replicas = False  # it is they who say how large it is

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def capacity(self) -> int:
        """0: nobody knows, so nothing is counted."""
        return int(self.settings.memory or self.measured or 0)

    @property
    def source(self) -> str:
        if self.settings.memory:
            return "configured"
        return self.meter if self.meter and not self._by_replicas else "replicas"

    def is_measured_as(self, settings: Settings) -> bool:
        return (settings.gpu, settings.cgroup) == (self.settings.gpu, self.settings.cgroup)

    def reading_taken(self, look: MeterReading, now: float) -> bool:
        """Is what is in use known now?"""
        known = look.used is not None and self.settings.memory  # then nobody has to measure how large it is
        self.problem = "" if known else look.problem
        if look.capacity is not None:
            self.measured, self._by_replicas = look.capacity, False
        if look.used is not None:
            self.used, self.looked = look.used, now
        return look.used is not None

    def load_reported(self, key: ReplicaKey, load: EngineLoad, now: float) -> bool:
        """What a replica says of it; where the device is measured, that is not needed. Is this a look at it?"""
        if (load.memory_total is None and load.memory_used is None) or (self.meter and not self.problem):
            return False
        self._said = {who: said for who, said in self._said.items() if now - said.at <= REPORT_TTL_SECONDS}
        if key in self._said or len(self._said) < MAX_REPORTING_REPLICAS:
            self._said[key] = ReportedMemory(_to_int(load.memory_total), _to_int(load.memory_used), now)
        totals = [said.total for said in self._said.values() if said.total]
        if totals:
            self.measured, self._by_replicas = min(totals), True
        used = [said.used for said in self._said.values() if said.used is not None]
        if not used or now - self.looked < MIN_SAMPLE_SPACING_SECONDS:
            return False
        # One that says what it uses itself, and not what all use, says less: the most is the nearest to the truth.
        self.used, self.looked = max(used), now
        return True

    @property
    def external_usage(self) -> int:
        """What strangers use of what is configured as ours, where that is not all there is, or more than there is."""
        return max(0, self.external.amount - self.unconfigured_bytes)

    @property
    def unconfigured_bytes(self) -> int:
        """What there is besides what is configured as ours; less than nothing, if there is less than that."""
        return self.measured - self.capacity if self.measured else 0


def _to_int(amount: float | None) -> int | None:
    return None if amount is None else int(amount)
