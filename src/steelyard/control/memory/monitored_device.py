"""A monitored device: its size, its use, and its failures."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from ...config import DeviceConfig as Settings
from ...core.memory.ledger import Device
from ...protocols.load import EngineLoad
from ..fleet.registry import ReplicaKey
from .external_usage import ExternalUsage, OvercountDetector
from .meters.devices import MeterReading

REPORT_TTL_SECONDS = 10.0  # of a replica, about its device
MIN_SAMPLE_SPACING_SECONDS = 1.0  # between two that count as two
MAX_REPORTING_REPLICAS = 1024


class ReportedMemory(NamedTuple):
    total: float | None
    used: float | None
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
        self._by_replicas = False  # its size is what they report

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def capacity(self) -> int:
        """0: unknown, so nothing is counted."""
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
        known = look.used is not None and self.settings.memory  # then its size need not be measured
        self.problem = "" if known else look.problem
        if look.capacity is not None:
            self.measured, self._by_replicas = look.capacity, False
        if look.used is not None:
            self.used, self.looked = look.used, now
        return look.used is not None

    def load_reported(self, key: ReplicaKey, load: EngineLoad, now: float) -> bool:
        """Not needed where a meter works. Returns whether this is a new sample."""
        if (load.memory_total is None and load.memory_used is None) or (self.meter and not self.problem):
            return False
        self._said = {who: said for who, said in self._said.items() if now - said.at <= REPORT_TTL_SECONDS}
        if key in self._said or len(self._said) < MAX_REPORTING_REPLICAS:
            self._said[key] = ReportedMemory(load.memory_total, load.memory_used, now)
        totals = [said.total for said in self._said.values() if said.total]
        if totals:
            self.measured, self._by_replicas = int(min(totals)), True
        used = [said.used for said in self._said.values() if said.used is not None]
        if not used or now - self.looked < MIN_SAMPLE_SPACING_SECONDS:
            return False
        # A replica that reports only its own use reports less: the most is nearest to the truth.
        self.used, self.looked = int(max(used)), now
        return True

    @property
    def external_usage(self) -> int:
        """Of the memory configured as ours, which may be more or less than there is."""
        return max(0, self.external.amount - self.unconfigured_bytes)

    @property
    def unconfigured_bytes(self) -> int:
        """Memory besides what is configured as ours; negative: there is less."""
        return self.measured - self.capacity if self.measured else 0
