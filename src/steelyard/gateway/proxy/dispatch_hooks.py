"""What a worker adds to the dispatcher, as no-ops: other workers (peer_workers.py) and devices (device_memory.py)."""

from __future__ import annotations

from collections.abc import Mapping

from ...config import Config, ModelConfig, ReplicaConfig
from ...core.memory.ledger import Residency
from ...core.replica import Replica
from ...core.request import INFINITY
from ...link.messages import DeviceCapacities, MemorySample, MemorySizes, Quarantine, StartProgress
from ...protocols.load import EngineLoad
from ..exchange import Exchange


class Peers:
    """Where there are no other workers."""

    count = 0  # other workers

    def add_replica(self, replica: Replica, model: str, column: int) -> None:
        pass

    def remove_replica(self, column: int) -> None:
        pass

    def set_queue_columns(self, columns: Mapping[str, Mapping[str, int]]) -> None:
        pass

    def set_queue_column(self, model: str, columns: Mapping[str, int]) -> None:
        pass

    def publish(self, replica: Replica) -> None:
        pass

    def refresh(self, now: float) -> None:
        pass

    def next_poll(self, now: float) -> float:
        return INFINITY

    def yield_to_longest_queue(self, replica: Replica, model: str, now: float) -> None:
        pass


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

    def apply(self, message: DeviceCapacities | MemorySizes | Quarantine | StartProgress, now: float) -> None:
        pass

    def dispatched(self, replica: Replica, seconds: float, now: float) -> None:
        pass

    def request_waiting(self, model: str, now: float) -> None:
        pass

    def has_waiting(self) -> bool:
        return False

    def request_rejected(self, model: str, now: float) -> None:
        pass

    def response_started(self, replica: Replica, exchange: Exchange, load: EngineLoad | None, status: int) -> None:
        pass

    def take_samples(self) -> tuple[MemorySample, ...]:
        return ()

    def unmeasured(self) -> tuple[str, ...]:
        return ()

    def out_of_memory(self, exchange: Exchange, replica: Replica, how: str, now: float) -> None:
        pass

    def connection_lost(self, exchange: Exchange, replica: Replica, now: float) -> None:
        pass

    def replica_gone(self, replica: Replica, now: float) -> None:
        pass
