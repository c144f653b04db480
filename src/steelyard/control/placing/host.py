"""The servers that can load models, and each model's copy there: whether it is there, as far as is known."""

from __future__ import annotations

import asyncio
from enum import Enum

from ...addresses import replica_address
from ...config import Placement
from ...core.replica import State
from ..probing.target import Key, Target
from .desk import Desk


class Phase(Enum):
    UNSURE = "unsure"  # only the server's index can tell
    ABSENT = "absent"
    ROOMED = "roomed"  # room is reserved, and the server not asked yet
    LOADING = "loading"
    RESIDENT = "resident"
    DRAINING = "draining"  # gets nothing new, finishes what it has
    UNLOADING = "unloading"


class Copy:
    """A model on a server, there or not: what the fleet calls a replica of a model with `placement`."""

    def __init__(self, target: Target, settings: Placement, host: Host, desk: Desk, now: float) -> None:
        self.target = target
        self.settings = settings
        self.host = host
        self.desk = desk
        self.phase = Phase.UNSURE
        self.since = now
        self.counted = False  # its bytes are in the book
        self.size = 0  # bytes reserved
        self.state = State.STARTING  # in the eyes of the fleet
        self.surplus_since = float("inf")  # since when its device is over its budget, because it was found there
        self.ours = False  # it was loaded by us
        self.ordered: float | None = None  # since when a job is under way that will load it, once there is room
        self.dropped = False  # no longer in the configuration

    @property
    def key(self) -> Key:
        return self.target.key

    @property
    def model(self) -> str:
        return self.target.model

    def turn(self, phase: Phase, now: float) -> None:
        if phase is not self.phase:
            self.phase, self.since = phase, now


class Host:
    """A server process. One thing at a time is done there."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.device = ""
        self.copies: dict[str, Copy] = {}  # by model
        self.came = now
        self.asked = False  # a look at its index has ended, well or not
        self.known = False  # it answers, and what is there is known
        self.problem = ""  # why not
        self.silent = 0  # looks in a row without an answer
        self.unheard_since = now
        self.refuses_since = float("inf")  # since when nobody listens there
        self.looked = 0.0
        self.due = now  # the next look
        self.looking: asyncio.Task[None] | None = None
        self.doubted = False  # what a look that is under way will find does not count any more
        self.busy = False  # a load or an unload is under way

    @property
    def desks(self) -> list[Desk]:
        """One for each kind of index that it has: nearly always one."""
        return list({copy.desk.kind: copy.desk for copy in self.copies.values()}.values())

    @property
    def is_unsure(self) -> bool:
        return any(copy.phase is Phase.UNSURE for copy in self.copies.values())

    def look_by(self, when: float) -> None:
        self.due = min(self.due, when)


def host_name(target: Target) -> str:
    """What is at one address is one process."""
    return str(replica_address(target.settings.url))
