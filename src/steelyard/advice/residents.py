"""The models on each device, as far as the configuration says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from ..addresses import replica_address
from ..config import Config, DeviceConfig, ModelConfig
from ..documents import Key


class ResidentModel(NamedTuple):
    """A model on a server of a device; or on the device, wherever there, if it is loaded on demand."""

    model: str
    key: Key  # of the replica
    footprint: int
    request: int  # what one request of it needs at least; 0: not declared
    permanent: bool  # it is there for good: nobody unloads it to make room

    @property
    def minimum_bytes(self) -> int:
        """What it takes to answer one request."""
        return self.footprint + self.request


def resident_models(config: Config) -> dict[str, list[ResidentModel]]:
    """By device. A model on two servers of a device is there twice, unless it is loaded on demand."""
    found: dict[str, dict[tuple[str, str], ResidentModel]] = defaultdict(dict)
    for name, model in config.models.items():
        for place, replica in enumerate(model.replicas):
            if replica.device in config.devices:
                made = _resident_model(name, model, ("models", name, "replicas", place))
                server = str(replica_address(replica.url)) if model.placement is None else ""
                found[replica.device].setdefault((server, name), made)
    return {device: list(there.values()) for device, there in found.items()}


def _resident_model(name: str, model: ModelConfig, key: Key) -> ResidentModel:
    memory, placement = model.memory, model.placement
    one_home = len({replica.device for replica in model.replicas}) == 1  # else it may be pinned elsewhere
    stays = placement is None or (placement.pinned and one_home)
    return ResidentModel(name, key, memory.footprint, memory.per_request + memory.per_unit, stays)


def usable_memory(device: DeviceConfig) -> int | None:
    """What may be given out; None: it is not known before it is measured."""
    return None if device.memory is None else int(device.memory * (1.0 - device.headroom))


def join_names(them: Iterable[ResidentModel]) -> str:
    """`a, b and c`, each once."""
    names = list(dict.fromkeys(tenant.model for tenant in them))
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
