"""What drives the balancer, and what a driver does about device memory: nothing, here (worker/device_memory.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...config import Config, ModelConfig, ReplicaConfig
from ...core.balancer import Balancer
from ...core.decision import Decision
from ...core.memory.ledger import Residency
from ...core.replica import Replica
from ...core.request import Request
from ...link.messages import DeviceCapacities, MemorySample, MemorySizes, Quarantine


class Driver(Protocol):
    """What carries out decisions: a worker's dispatcher, or the balancer process's server."""

    balancer: Balancer
    memory: DeviceMemory

    def execute(self, decisions: Sequence[Decision], now: float) -> None: ...

    def fail_over(self, replica: Replica, now: float) -> None:
        """What waits for its first byte and may be sent elsewhere is sent elsewhere."""

    def wake_now(self, now: float) -> None:
        """What time brings about is to be looked at again."""


class DeviceMemory:
    """Where no device is declared: nothing is counted."""

    def configure(self, config: Config, devices: Mapping[str, int]) -> None:
        pass

    def declare_model(self, name: str, model: ModelConfig, before: ModelConfig | None) -> None:
        pass

    def place_replica(self, settings: ReplicaConfig, model: ModelConfig, column: int) -> Residency | None:
        return None

    def move_replica(self, replica: Replica, settings: ReplicaConfig, model: ModelConfig) -> None:
        pass

    def apply(self, message: DeviceCapacities | MemorySizes | Quarantine, now: float) -> None:
        pass

    def dispatched(self, replica: Replica, seconds: float, now: float) -> None:
        pass

    def request_waiting(self, model: str, now: float) -> None:
        pass

    def has_waiting(self) -> bool:
        return False

    def request_rejected(self, model: str, now: float) -> None:
        pass

    def response_started(
        self, replica: Replica, request: Request, held: int | None, request_bytes: int | None, informative: bool
    ) -> None:
        """Bytes as its server says: held altogether, and taken by this request. `informative`: it really ran."""

    def take_samples(self) -> tuple[MemorySample, ...]:
        return ()

    def unmeasured(self) -> tuple[str, ...]:
        return ()

    def out_of_memory(self, request: Request, replica: Replica, how: str, now: float) -> None:
        pass

    def connection_lost(self, request: Request, replica: Replica, now: float) -> None:
        pass

    def replica_gone(self, replica: Replica, now: float) -> None:
        pass
