"""The servers that can load models, and each model's copy there: whether it is there, as far as is known."""

from __future__ import annotations

import asyncio
from enum import Enum

from ...addresses import replica_address
from ...config import PlacementConfig
from ...core.replica import State
from ..probing.target import ProbeTarget, ReplicaKey
from .desk import RepositoryClient


class CopyPhase(Enum):
    UNKNOWN = "unsure"  # only the server's index can tell
    ABSENT = "absent"
    RESERVED = "roomed"  # room is reserved, and the server not asked yet
    LOADING = "loading"
    RESIDENT = "resident"
    DRAINING = "draining"  # gets nothing new, finishes what it has
    UNLOADING = "unloading"


class ManagedCopy:
    """A model on a server, there or not: what the fleet calls a replica of a model with `placement`."""

    def __init__(
        self, target: ProbeTarget, settings: PlacementConfig, host: Host, desk: RepositoryClient, now: float
    ) -> None:
        self.target = target
        self.settings = settings
        self.host = host
        self.repository = desk
        self.phase = CopyPhase.UNKNOWN
        self.since = now
        self.reserved = False  # its bytes are in the book
        self.reserved_bytes = 0  # bytes reserved
        self.replica_state = State.STARTING  # in the eyes of the fleet
        self.over_budget_since = float("inf")  # since when its device is over its budget, because it was found there
        self.loaded_by_us = False  # it was loaded by us
        self.load_ordered_at: float | None = None  # since when a job is under way that will load it, once there is room
        self.removed = False  # no longer in the configuration

    @property
    def key(self) -> ReplicaKey:
        return self.target.key

    @property
    def model(self) -> str:
        return self.target.model

    def set_phase(self, phase: CopyPhase, now: float) -> None:
        if phase is not self.phase:
            self.phase, self.since = phase, now


class Host:
    """A server process. One thing at a time is done there."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.device = ""
        self.copies: dict[str, ManagedCopy] = {}  # by model
        self.came = now
        self.asked = False  # a look at its index has ended, well or not
        self.known = False  # it answers, and what is there is known
        self.problem = ""  # why not
        self.failures = 0  # looks in a row without an answer
        self.failing_since = now
        self.refuses_since = float("inf")  # since when nobody listens there
        self.last_poll_at = 0.0
        self.next_poll_at = now  # the next look
        self.poll_task: asyncio.Task[None] | None = None
        self.discard_poll = False  # what a look that is under way will find does not count any more
        self.busy = False  # a load or an unload is under way

    @property
    def repositories(self) -> list[RepositoryClient]:
        """One for each kind of index that it has: nearly always one."""
        return list({copy.repository.kind: copy.repository for copy in self.copies.values()}.values())

    @property
    def is_unsure(self) -> bool:
        return any(copy.phase is CopyPhase.UNKNOWN for copy in self.copies.values())

    def poll_by(self, when: float) -> None:
        self.next_poll_at = min(self.next_poll_at, when)


def host_name(target: ProbeTarget) -> str:
    """What is at one address is one process."""
    return str(replica_address(target.settings.url))
