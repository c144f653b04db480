"""What the keeper of started replicas needs of others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...config import ReplicaConfig
from ...core.replica import Event
from ...link.messages import ToWorker
from ..health.probe import ReplicaKey


class MemoryRoom(Protocol):
    """What is known of memory on devices (control.devices.Accounts)."""

    def rooms(self) -> Mapping[str, int]:
        """Device → bytes that a model may take there now. A device whose capacity is not known is missing."""

    def footprint(self, model: str) -> int:
        """Bytes a replica holds, declared or learned; 0: unknown."""


class ReplicaLoad(NamedTuple):
    """How a replica does, as workers last reported."""

    in_flight: int = 0
    slowness: float = 1.0
    cache: float | None = None
    ejected: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaDependencies:
    room: MemoryRoom
    members: Callable[[str, Iterable[ReplicaConfig]], None]  # model, all its started replicas from now on: the fleet
    # probes them and tells the workers
    move: Callable[[ReplicaKey, Event, str], None]  # something happens to a replica, and why: tells all workers
    drained: Callable[
        [ReplicaKey, float], Awaitable[bool]
    ]  # until no worker has a request there, at most so many seconds
    worths: Callable[[str], Mapping[str, ReplicaLoad]]  # of a model's replicas, by id
    note: Callable[..., None]  # (what, model, replica="", level=logging.INFO): into the event log
    tell: Callable[[ToWorker], None]  # to all workers
