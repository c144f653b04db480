"""What the placer needs of others: the room there is, what is wanted, and ways to tell the fleet and the workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ...core.replica import Event
from ...link.messages import ToWorker
from ..health.probe import ReplicaKey


class MemoryRoom(Protocol):
    """What is known of memory. What it says of a key that it does not know is 0, empty, or nothing at all."""

    def rooms(self) -> Mapping[str, int]:
        """Device → bytes that a load may take now, at whichever server."""

    def budgets(self) -> Mapping[str, int]:
        """Device → bytes that may be given out there in all."""

    def room_at(self, key: ReplicaKey) -> int:
        """Bytes that a load may take there now: as much, or more where its server keeps some for later."""

    def footprint(self, model: str) -> int:
        """Bytes a copy holds, declared or learned; 0: unknown."""

    def reserve(self, key: ReplicaKey, amount: int) -> bool:
        """Room for a load, in the book, under its lock. What was reserved for the key before is part of it."""

    def release(self, key: ReplicaKey) -> None:
        """It is not there any more, or never came."""

    def resident(self, key: ReplicaKey) -> None:
        """It is there: it counts, though nobody reserved room for it, and what it holds can be measured."""

    def is_over(self, key: ReplicaKey) -> bool:
        """Is more of its device in use than may be given out?"""

    def weighed(self, key: ReplicaKey, amount: int, now: float) -> None:
        """Its server says how much more it holds since it loaded it."""


class ReportedDemand(NamedTuple):
    """What workers reported of a model, all together."""

    waiting: int = 0  # requests that wait
    work: float = 0.0  # seconds of work they are
    oldest: float = 0.0  # seconds for which the first of them has waited; 0: not known
    rate: float = 0.0  # seconds of work that arrive per second, of late


@dataclass(frozen=True, slots=True)
class PlacementDependencies:
    room: MemoryRoom
    move: Callable[[ReplicaKey, Event, str], None]  # something happens to a replica, and why: tells all workers
    see_anew: Callable[
        [ReplicaKey], None
    ]  # what probes saw before does not count: look now, and say LOADED if it is ready
    drained: Callable[
        [ReplicaKey], Awaitable[bool]
    ]  # until no worker has a request there, with what was moved before in
    # force; False: some still do, and it was waited long enough
    demands: Callable[[], Mapping[str, ReportedDemand]]
    in_flight: Callable[[], Mapping[ReplicaKey, int]]  # requests that run, of all workers
    note: Callable[[str, str, str], None]  # what happened in words, model, replica
    tell: Callable[[ToWorker], None]  # to all workers
