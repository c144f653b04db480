"""What models share: devices, the memory they need there, and who may be unloaded to make room."""

from __future__ import annotations

from typing import Annotated, Literal

from ..documents import Seconds, Share, Size
from .parts import Count, NotNegative, Part, about


class Device(Part, frozen=True):
    """What replicas run on and share."""

    memory: Annotated[Size | None, about("its memory; left out: measured, by `gpu`, `cgroup`, or its replicas")] = None
    headroom: Annotated[Share, about("of the memory, left free")] = Share(0.1)
    concurrency: Annotated[Count | None, about("requests it takes at once, of all models together")] = None
    gpu: Annotated[str, about("number or UUID of a GPU of this machine: its memory is measured (extra `gpu`)")] = ""
    cost: Annotated[NotNegative, about("price of a replica on it for an hour; of two alike the dearer goes first")] = (
        0.0
    )
    cgroup: Annotated[str, about("path of a cgroup of this machine: its limit and its use are measured")] = ""


class Memory(Part, frozen=True):
    """What a model needs of a device. Where it can be measured, these are only where to begin."""

    weights: Annotated[Size, about("what it holds when nothing runs")] = Size(0)
    workspace: Annotated[Size, about("what it holds besides, for whatever runs")] = Size(0)
    request: Annotated[Size, about("what each running request holds")] = Size(0)
    per_unit: Annotated[
        Size, about("and for each unit of its size: a token, an element of a tensor, a byte of another body")
    ] = Size(0)

    @property
    def footprint(self) -> int:
        return self.weights + self.workspace

    @property
    def tells_requests(self) -> bool:
        """Does it say anything of requests?"""
        return bool(self.request or self.per_unit)


class Placement(Part, frozen=True):
    """The model is loaded and unloaded as it is needed: its replicas are servers that can hold it."""

    pinned: Annotated[bool, about("loaded at once, and never unloaded to make room for another")] = False
    load_time: Annotated[Seconds, about("how long it takes to load, until that was measured")] = Seconds(10)
    timeout: Annotated[Seconds, about("longest that a load may take before it counts as failed")] = Seconds(300)
    through: Annotated[
        Literal["", "repository", "kit"],
        about("how: `repository` (Triton, MLServer) or `kit` (steelyard.replica); empty: as its dialect does"),
    ] = ""
