"""A replica on a device: does its model hold memory there?"""

from __future__ import annotations

from math import inf

from ...core.memory.ledger import LedgerCells, Residency, Server
from ...core.replica import State
from ..fleet.registry import ReplicaKey
from .load_difference import LoadDifference

RUNNING_STATES = (
    State.LOADING,
    State.READY,
    State.EJECTED,
    State.DRAINING,
)  # its process is there, as far as one can see
LOADED_STATES = (State.READY, State.EJECTED)
UNREACHABLE_SECONDS = (
    30.0  # seconds: who is out of reach for so long holds nothing any more; before, it may just be busy
)


class DeviceReplica:
    def __init__(self, key: ReplicaKey, place: Residency, state: State, since: float) -> None:
        self.key = key
        self.place = place
        self.state = state
        self.since = since
        self.on_demand = False  # somebody loads and unloads it, and reserves room for that
        self.resident = False  # room is reserved for its model
        self.measured = False  # and its server has said what it holds since it is ready
        self.base_reported_at = -inf  # when its server last said what it holds with nothing running
        self.reports_base = False  # it ever did
        self.of_server, self.of_device = LoadDifference(), LoadDifference()
        self.changes = 0  # how often it came or went

    @property
    def model(self) -> str:
        return self.key[0]

    def needs_reservation(self) -> bool:
        """It is there, and nobody reserved room for it."""
        return not self.resident and self.state in (LOADED_STATES if self.on_demand else RUNNING_STATES)

    def has_gone(self, now: float) -> bool:
        """Nothing is there any more. What is loaded on demand goes when it is unloaded: a server that loads may be out
        of reach for as long as that takes."""
        if not self.resident or self.on_demand:
            return False
        lost = self.state is State.UNREACHABLE and now - self.since >= UNREACHABLE_SECONDS
        return lost or self.state in (State.GONE, State.UNLOADED)

    def follow(self, now: float) -> None:
        """What this means for measuring what it holds."""
        for difference in (self.of_server, self.of_device):
            if self.resident and self.state in LOADED_STATES:
                difference.loaded(now)
            elif self.resident:
                difference.loading()
            else:
                difference.unloaded()


def held_bytes(server: Server, cells: LedgerCells) -> int:
    """What the server was measured to hold; 0: it was not."""
    return max((cells.held(place.slot) for place in server.residencies), default=0)


def idle_bytes(server: Server, cells: LedgerCells) -> int:
    """What counts for its models, or for itself without its requests if that was measured to be more."""
    bases = sum(cells.base(place.slot) for place in server.residencies)
    return max(bases, max((cells.idle(place.slot) for place in server.residencies), default=0))


def reserved_bytes(server: Server, cells: LedgerCells) -> int:
    return idle_bytes(server, cells) + sum(cells.running(place.slot) for place in server.residencies)


def is_idle(server: Server, cells: LedgerCells) -> bool:
    return not any(cells.running(place.slot) for place in server.residencies)
