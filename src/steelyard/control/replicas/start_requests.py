"""Chooses the name, device and number of a new replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from ...config import RuntimeConfig
from ...runtimes import Instance, InstancePhase, ReplicaSpec
from ...units import format_size
from .context import ControllerContext, smallest_free
from .managed_replica import ManagedReplica


class NoDeviceMemoryError(Exception):
    """In words, with numbers."""


def choose_device(need: int, devices: Sequence[str], rooms: Mapping[str, int], ours: Mapping[str, int]) -> str:
    """The device with most bytes free (`rooms`); for an unknown footprint, the one with fewest replicas (`ours`)."""
    if not devices:
        return ""
    fit = [name for name in devices if not need or rooms.get(name, inf) >= need]
    if not fit:
        free = ", ".join(f"{name} has {format_size(max(0, rooms[name]))} free" for name in devices)
        raise NoDeviceMemoryError(f"it needs {format_size(need)}; {free}")
    if not need:  # its footprint is unknown
        return min(fit, key=lambda name: (ours.get(name, 0), -rooms.get(name, inf)))
    return min(fit, key=lambda name: (-rooms.get(name, inf), ours.get(name, 0)))


ADOPTED_READY_SECONDS = 1.0  # until a running replica is probed ready


class StartRequestBuilder:
    def __init__(self, model: str, context: ControllerContext) -> None:
        self._model = model
        self._context = context
        self._size = 0  # footprint, as last learned

    def new(
        self, settings: RuntimeConfig, others: Mapping[str, ManagedReplica], now: float
    ) -> tuple[ManagedReplica, ReplicaSpec]:
        context, model = self._context, self._model
        device = choose_device(self.footprint(), settings.devices, context.rooms(), context.replicas_per_device())
        id = context.ids.next(model, {*context.listed(model), *context.fleet.replica_loads(model), *others})
        instance = Instance(model, id, "", device, settings.fingerprint(), InstancePhase.STARTING, 0.0)
        replica = ManagedReplica(instance, context.runtimes[settings.kind], _free_number(others), now)
        replica.ready_by = now + context.cold_start(model)[0]
        return replica, ReplicaSpec(model, id, settings, device, context.gpu(device), replica.number)

    def found(self, instance: Instance, kind: str, others: Mapping[str, ManagedReplica], now: float) -> ManagedReplica:
        replica = ManagedReplica(instance, self._context.runtimes[kind], _free_number(others), now, adopted=True)
        replica.ready_by = now + ADOPTED_READY_SECONDS
        self._context.ids.used(self._model, instance.id)
        return replica

    def misplaced(self, settings: RuntimeConfig, device: str) -> bool:
        gone = device != "" and device not in self._context.config.devices
        return gone or (bool(settings.devices) and device not in settings.devices)

    def footprint(self) -> int:
        """Bytes. Memory accounting forgets a model without replicas, so the last value is kept."""
        self._size = self._context.memory.footprint(self._model) or self._size
        return self._size or self._context.declared(self._model)


def _free_number(others: Mapping[str, ManagedReplica]) -> int:
    return smallest_free(replica.number for replica in others.values())
