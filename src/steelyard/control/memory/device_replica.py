"""A replica on a device, and whether its model holds memory there."""

from __future__ import annotations

from math import inf

from ...core.memory.ledger import LedgerCells, Residency, Server
from ...core.replica import State
from ..fleet.registry import ReplicaKey
from .load_difference import LoadDifference

LOADED_STATES = (State.READY, State.EJECTED)
RUNNING_STATES = (*LOADED_STATES, State.LOADING, State.DRAINING)  # its process exists
UNREACHABLE_SECONDS = 30.0  # unreachable for longer, it holds nothing; before, it may be busy


class DeviceReplica:
    def __init__(self, key: ReplicaKey, place: Residency, state: State, since: float) -> None:
        self.key = key
        self.place = place
        self.state = state
        self.since = since
        self.on_demand = False  # placement loads and unloads it, and reserves memory for that
        self.resident = False  # memory is reserved for its model
        self.measured = False  # and its server has reported since it is ready
        self.base_reported_at = -inf  # when its server last reported what it holds idle
        self.reports_base = False  # it ever did
        self.of_server, self.of_device = LoadDifference(), LoadDifference()
        self.changes = 0  # how often it came or went

    @property
    def model(self) -> str:
        return self.key[0]

    def needs_reservation(self) -> bool:
        """It is there, and nothing is reserved for it."""
        return not self.resident and self.state in (LOADED_STATES if self.on_demand else RUNNING_STATES)

    def has_gone(self, now: float) -> bool:
        """What is loaded on demand goes when it is unloaded: a server that loads may be unreachable for as long."""
        if not self.resident or self.on_demand:
            return False
        lost = self.state is State.UNREACHABLE and now - self.since >= UNREACHABLE_SECONDS
        return lost or self.state in (State.GONE, State.UNLOADED)

    def follow(self, now: float) -> None:
        """Tells the measurements of its load."""
        for difference in (self.of_server, self.of_device):
            if self.resident and self.state in LOADED_STATES:
                difference.loaded(now)
            elif self.resident:
                difference.loading()
            else:
                difference.unloaded()


def held_bytes(server: Server, cells: LedgerCells) -> int:
    """As measured; 0: it was not."""
    return max((cells.held(place.slot) for place in server.residencies), default=0)


def idle_bytes(server: Server, cells: LedgerCells) -> int:
    """What its models count for, or what it was measured to hold idle, if that is more."""
    bases = sum(cells.base(place.slot) for place in server.residencies)
    return max(bases, max((cells.idle(place.slot) for place in server.residencies), default=0))


def reserved_bytes(server: Server, cells: LedgerCells) -> int:
    return idle_bytes(server, cells) + sum(cells.running(place.slot) for place in server.residencies)


def is_idle(server: Server, cells: LedgerCells) -> bool:
    return not any(cells.running(place.slot) for place in server.residencies)
