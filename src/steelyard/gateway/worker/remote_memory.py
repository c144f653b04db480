"""Device memory, where the balancer process counts it: what a worker sees of it, it tells."""

from __future__ import annotations

from collections.abc import Mapping

from ...config import Config, ModelConfig, ReplicaConfig
from ...core.memory.ledger import MemoryLedger, Residency
from ...core.replica import Replica
from ...core.request import INFINITY, Request
from ..proxy.dispatch_hooks import DeviceMemory
from ..shared_balancer.client import BalancerClient
from ..shared_balancer.messages import ConnectionBroken, MemoryReport, OutOfMemoryReport


class RemoteMemory(DeviceMemory):
    """Memory is counted in the balancer process. Here is only what a worker sees of it."""

    def __init__(self, client: BalancerClient) -> None:
        self._client = client
        self._devices = MemoryLedger()  # so that it is known which replicas are on one

    def configure(self, config: Config, devices: Mapping[str, int]) -> None:
        for name in [name for name in self._devices.devices if name not in devices]:
            self._devices.remove_device(name)
        for name, index in devices.items():
            self._devices.set_device(name, index, 0, config.devices[name].headroom, INFINITY)

    def place_replica(self, settings: ReplicaConfig, model: ModelConfig, column: int) -> Residency | None:
        device = self._devices.devices.get(settings.device)
        return None if device is None or column < 0 else self._devices.add_residency(device, settings.url, column)

    def move_replica(self, replica: Replica, settings: ReplicaConfig, model: ModelConfig) -> None:
        replica.residency = self.place_replica(settings, model, replica.context.column)

    def response_started(
        self, replica: Replica, request: Request, held: int | None, request_bytes: int | None, informative: bool
    ) -> None:
        number = self._client.number_of(request)
        self._client.tell(MemoryReport(number, replica.id, held, request_bytes, informative))

    def out_of_memory(self, request: Request, replica: Replica, how: str, now: float) -> None:
        self._client.tell(OutOfMemoryReport(self._client.number_of(request), replica.id, how))

    def connection_lost(self, request: Request, replica: Replica, now: float) -> None:
        if replica.residency is not None:
            self._client.tell(ConnectionBroken(self._client.number_of(request), replica.id))
