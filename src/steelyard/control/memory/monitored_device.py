"""A monitored device: its size, its use, and its failures."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from ...config import DeviceConfig
from ...core.memory.ledger import Device
from ...protocols.load import EngineLoad
from ..fleet.registry import ReplicaKey
from .meters.devices import MeterReading

EXTERNAL_USAGE_SAMPLES = 3
OVERCOUNT_SAMPLES = 8  # a crashed server is detected sooner
REPORT_TTL_SECONDS = 10.0  # of a replica, about its device
MIN_SAMPLE_SPACING_SECONDS = 1.0  # between two that count as two
MAX_REPORTING_REPLICAS = 1024


class ExternalUsage:
    """Memory used by processes we do not manage: all in use less what is ours. That is known only within bounds while
    requests run, so it rises or falls when several samples in a row leave no other choice."""

    def __init__(self) -> None:
        self.amount = 0
        self._least: deque[int] = deque(maxlen=EXTERNAL_USAGE_SAMPLES)
        self._most: deque[int] = deque(maxlen=EXTERNAL_USAGE_SAMPLES)

    def sample(self, used: int, surely: int, possibly: int) -> None:
        """Of what is `used`, `surely` and `possibly` are the bounds of what is ours."""
        self._least.append(used - possibly)
        self._most.append(used - surely)
        if len(self._least) == EXTERNAL_USAGE_SAMPLES:
            self.amount = max(0, min(max(self.amount, min(self._least)), max(self._most)))

    def reclaim(self, amount: int) -> None:
        """So much that was counted here is known to be ours."""
        self.amount = max(0, self.amount - amount)


class OvercountDetector:
    """Detects that more is counted for our models than is in use: several samples in a row, with nothing running."""

    def __init__(self) -> None:
        self._looks: deque[int] = deque(maxlen=OVERCOUNT_SAMPLES)

    def sample(self, used: int, surely: int, idle: bool) -> int:
        """So much of what is `surely` ours is not there; 0: not proven."""
        if not idle or used >= surely:
            self._looks.clear()
            return 0
        self._looks.append(surely - used)
        if len(self._looks) < OVERCOUNT_SAMPLES:
            return 0
        found = min(self._looks)
        self._looks.clear()
        return found


class ReportedMemory(NamedTuple):
    total: float | None
    used: float | None
    at: float


class MonitoredDevice:
    def __init__(self, device: Device, settings: DeviceConfig, meter: str) -> None:
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

    def is_measured_as(self, settings: DeviceConfig) -> bool:
        return (settings.gpu, settings.cgroup) == (self.settings.gpu, self.settings.cgroup)

    def reading_taken(self, look: MeterReading, now: float) -> bool:
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
        self._said = {replica: said for replica, said in self._said.items() if now - said.at <= REPORT_TTL_SECONDS}
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
