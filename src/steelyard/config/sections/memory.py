"""Devices, the memory that models need there, and which models may be unloaded to make room."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from ...documents import Seconds, Share, Size
from .base import Count, NotNegative, Section, described


class DeviceConfig(Section, frozen=True):
    """What replicas run on and share."""

    __renamed__: ClassVar[dict[str, str]] = {"cost": "hourly_cost"}

    memory: Annotated[Size | None, described("its memory; unset: measured by `gpu`, `cgroup` or replicas")] = None
    headroom: Annotated[Share, described("of the memory, left free")] = Share(0.1)
    concurrency: Annotated[Count | None, described("requests it takes at once, of all models together")] = None
    gpu: Annotated[str, described("number or UUID of a GPU of this machine: its memory is measured (extra `gpu`)")] = ""
    hourly_cost: Annotated[NotNegative, described("price of a replica for an hour; the more expensive stops first")] = (
        0.0
    )
    cgroup: Annotated[str, described("path of a cgroup of this machine: its limit and its use are measured")] = ""


class MemoryConfig(Section, frozen=True):
    """What a model needs of a device. Where it can be measured, these are only where to begin."""

    __renamed__: ClassVar[dict[str, str]] = {"request": "per_request"}

    weights: Annotated[Size, described("what it holds when nothing runs")] = Size(0)
    workspace: Annotated[Size, described("what it holds besides, for whatever runs")] = Size(0)
    per_request: Annotated[Size, described("what each running request holds")] = Size(0)
    per_unit: Annotated[Size, described("and each unit of its size: a token, a tensor element, else a byte")] = Size(0)

    @property
    def footprint(self) -> int:
        return self.weights + self.workspace

    @property
    def tells_requests(self) -> bool:
        return bool(self.per_request or self.per_unit)


class PlacementConfig(Section, frozen=True):
    """The model is loaded and unloaded as it is needed: its replicas are servers that can hold it."""

    __renamed__: ClassVar[dict[str, str]] = {"through": "load_api", "timeout": "load_timeout"}

    pinned: Annotated[bool, described("loaded at once, and never unloaded to make room for another")] = False
    load_time: Annotated[Seconds, described("how long it takes to load, until that was measured")] = Seconds(10)
    load_timeout: Annotated[Seconds, described("longest that a load may take until it counts as failed")] = Seconds(300)
    load_api: Annotated[
        Literal["", "repository", "agent"],
        described(
            "`repository` (Triton, MLServer) or `agent` (steelyard.replica); empty: by dialect",
            renamed={"kit": "agent"},
        ),
    ] = ""
