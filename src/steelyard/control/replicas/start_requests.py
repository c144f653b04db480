"""What a new replica of a model is to be: its name, its device, its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from ...config import RuntimeConfig
from ...runtimes import Instance, InstancePhase, ReplicaSpec
from ...units import format_size
from .context import ControllerContext, smallest_free
from .managed_replica import ManagedReplica

# Which device a replica is started on: where most room is left; of unknown size, where the fewest are. Pure.


class NoDeviceMemoryError(Exception):
    """In words, with numbers."""


def choose_device(need: int, devices: Sequence[str], rooms: Mapping[str, int], ours: Mapping[str, int]) -> str:
    """`rooms`: bytes free, a device that is missing has room; `ours`: replicas there. NoRoomError: nowhere."""
    if not devices:
        return ""
    fit = [name for name in devices if not need or rooms.get(name, inf) >= need]
    if not fit:
        free = ", ".join(f"{name} has {format_size(max(0, rooms[name]))} free" for name in devices)
        raise NoDeviceMemoryError(f"it needs {format_size(need)}; {free}")
    if not need:  # it takes room that nobody counts
        return min(fit, key=lambda name: (ours.get(name, 0), -rooms.get(name, inf)))
    return min(fit, key=lambda name: (-rooms.get(name, inf), ours.get(name, 0)))


ADOPTED_READY_SECONDS = 1.0  # seconds until a replica that serves already is seen ready again


class StartRequestBuilder:
    def __init__(self, model: str, tools: ControllerContext) -> None:
        self._model = model
        self._tools = tools
        self._size = 0  # bytes, as the accounts said

    def new(
        self, settings: RuntimeConfig, others: Mapping[str, ManagedReplica], now: float
    ) -> tuple[ManagedReplica, ReplicaSpec]:
        """NoRoomError: there is no device for it."""
        tools, model = self._tools, self._model
        device = choose_device(self.footprint(), settings.devices, tools.rooms(), tools.replicas_per_device())
        id = tools.ids.next(model, {*tools.listed(model), *tools.fleet.replica_loads(model), *others})
        instance = Instance(model, id, "", device, settings.fingerprint(), InstancePhase.STARTING, 0.0)
        replica = ManagedReplica(instance, tools.runtimes[settings.kind], _free_number(others), now)
        replica.ready_by = now + tools.cold_start(model)[0]
        return replica, ReplicaSpec(model, id, settings, device, tools.gpu(device), replica.number)

    def found(self, instance: Instance, kind: str, others: Mapping[str, ManagedReplica], now: float) -> ManagedReplica:
        """It runs already."""
        replica = ManagedReplica(instance, self._tools.runtimes[kind], _free_number(others), now, adopted=True)
        replica.ready_by = now + ADOPTED_READY_SECONDS
        self._tools.ids.used(self._model, instance.id)
        return replica

    def misplaced(self, settings: RuntimeConfig, device: str) -> bool:
        """Could none be started where it is any more?"""
        gone = device != "" and device not in self._tools.config.devices
        return gone or (bool(settings.devices) and device not in settings.devices)

    def footprint(self) -> int:
        """Bytes. The accounts forget what they learned of a model that has no replica."""
        self._size = self._tools.memory.footprint(self._model) or self._size
        return self._size or self._tools.declared(self._model)


def _free_number(others: Mapping[str, ManagedReplica]) -> int:
    return smallest_free(replica.number for replica in others.values())
