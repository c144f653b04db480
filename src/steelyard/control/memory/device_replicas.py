"""The replicas on devices, and the memory reserved for their models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from ...config import Config, ReplicaConfig
from ...core.memory.ledger import Device, LedgerCells, MemoryLedger, Residency, Server
from ...core.replica import State
from ..fleet.active_config import ColumnTable
from ..fleet.registry import ReplicaKey
from .footprint import LoadDifference

LOADED_STATES = (State.READY, State.EJECTED)
RUNNING_STATES = (*LOADED_STATES, State.LOADING, State.DRAINING)  # its process exists
UNREACHABLE_SECONDS = 30.0  # unreachable for longer, it holds nothing; before, it may be busy
MAX_LOCK_ATTEMPTS = 8  # a worker has the lock for some microseconds


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
    return max((cells.held[place.column] for place in server.residencies), default=0)


def idle_bytes(server: Server, cells: LedgerCells) -> int:
    """What its models count for, or what it was measured to hold idle, if that is more."""
    bases = sum(cells.base[place.column] for place in server.residencies)
    return max(bases, max((cells.idle[place.column] for place in server.residencies), default=0))


def reserved_bytes(server: Server, cells: LedgerCells) -> int:
    return idle_bytes(server, cells) + sum(cells.running(place.column) for place in server.residencies)


def is_idle(server: Server, cells: LedgerCells) -> bool:
    return not any(cells.running(place.column) for place in server.residencies)


class _ConfiguredPlace(NamedTuple):
    replica: ReplicaConfig
    column: int
    device: Device

    def is_at(self, place: Residency) -> bool:
        return (place.device, place.server.name, place.column) == (self.device, self.replica.url, self.column)


class DeviceReplicas:
    def __init__(self, ledger: MemoryLedger, footprint: Callable[[str], int]) -> None:
        """`footprint(model)`: the bytes it holds."""
        self._ledger = ledger
        self._footprint = footprint
        self._all: dict[ReplicaKey, DeviceReplica] = {}
        self._there: dict[Residency, DeviceReplica] = {}
        self._of: dict[str, list[DeviceReplica]] = {}  # by model
        self._changes: Counter[Device | Server] = Counter()
        self._leaving: list[Residency] = []
        self._states: dict[ReplicaKey, tuple[State, float]] = {}  # of those too that are on no device
        self.devices: dict[int, int] = {}  # column → number of the device, of all that ever were

    def __iter__(self) -> Iterator[DeviceReplica]:
        return iter(self._all.values())

    def get(self, key: ReplicaKey) -> DeviceReplica | None:
        return self._all.get(key)

    def follow(self, config: Config, columns: ColumnTable, now: float) -> None:
        """From now on exactly these, on devices that the ledger knows."""
        wanted = self._wanted(config, columns)
        for key, holder in list(self._all.items()):
            if key not in wanted or not wanted[key].is_at(holder.place):
                self._part(self._all.pop(key))
        for key, (replica, column, device) in wanted.items():
            placement = config.models[key[0]].placement
            if key not in self._all:
                self._come(key, self._ledger.add_residency(device, replica.url, column), now)
            self._all[key].on_demand = placement is not None
            self._all[key].place.permanent = placement is None or placement.pinned
        members = {(name, replica.name) for name, model in config.models.items() for replica in model.replicas}
        self._states = {key: state for key, state in self._states.items() if key in members}
        self._of = {}
        for holder in self:
            self._of.setdefault(holder.model, []).append(holder)
            self._update(holder, now)
        there = {each for holder in self for each in (holder.place.server, holder.place.device)}
        self._changes = Counter({each: count for each, count in self._changes.items() if each in there})

    def _wanted(self, config: Config, columns: ColumnTable) -> dict[ReplicaKey, _ConfiguredPlace]:
        devices = self._ledger.devices
        return {
            (name, replica.name): _ConfiguredPlace(replica, columns[name][replica.name], devices[replica.device])
            for name, model in config.models.items()
            for replica in model.replicas
            if replica.device in devices and replica.name in columns.get(name, {})
        }

    def _state(self, key: ReplicaKey, now: float) -> tuple[State, float]:
        return self._states.get(key, (State.STARTING, now))

    def _come(self, key: ReplicaKey, place: Residency, now: float) -> None:
        self._all[key] = self._there[place] = DeviceReplica(key, place, *self._state(key, now))
        self.devices[place.column] = place.device.index

    def _part(self, holder: DeviceReplica) -> None:
        """Its model no longer counts; its requests do, until they end."""
        place = holder.place
        self._change(holder, 0)
        self._ledger.cells.held[place.column] = 0
        self._ledger.cells.idle[place.column] = 0
        del self._there[place]
        self._ledger.remove_residency(place)
        if place in place.server.residencies:
            self._leaving.append(place)

    def set_state(self, key: ReplicaKey, state: State, now: float) -> None:
        before, _ = self._state(key, now)
        if state is not before or key not in self._states:
            self._states[key] = (state, now)
        holder = self._all.get(key)
        if holder is not None:
            holder.state, holder.since = self._states[key]
            self._update(holder, now)

    def tick(self, now: float) -> None:
        for holder in self:
            self._update(holder, now)
        for place in self._leaving:
            self._ledger.remove_residency(place)
        self._leaving = [place for place in self._leaving if place in place.server.residencies]

    def _update(self, holder: DeviceReplica, now: float) -> None:
        if holder.needs_reservation():
            self.hold(holder)
        elif holder.has_gone(now):
            self.release(holder)
            if not any(other.resident for other in self.at(holder.place.server)):
                self._ledger.set_measured(holder.place, 0)  # its process is no more
                self._ledger.set_measured_idle(holder.place, 0)
        holder.follow(now)

    def hold(self, holder: DeviceReplica) -> None:
        """Its model is there, so it counts whether or not it fits."""
        holder.resident = True
        self._change(holder, self._footprint(holder.model))

    def reserve(self, holder: DeviceReplica, amount: int) -> bool:
        """For a load of its model. False: there is no room."""
        if not any(self._ledger.reserve_model(holder.place, amount) for _ in range(MAX_LOCK_ATTEMPTS)):
            return False
        holder.resident = True
        self._changed(holder)
        return True

    def release(self, holder: DeviceReplica) -> None:
        """Its model is gone: until its server reports again, it counts for so much less."""
        place, cells = holder.place, self._ledger.cells
        base, bases = cells.base[place.column], sum(cells.base[each.column] for each in place.server.residencies)

        def without(amount: int) -> int:
            """A measurement before it came, or of a failed load, is without it anyway."""
            return max(0, amount - base) if holder.measured or amount >= bases else amount

        idle, held_now = without(cells.idle[place.column]), without(cells.held[place.column])
        self._ledger.set_measured(place, max(idle, held_now))
        self._ledger.set_measured_idle(place, idle)
        holder.resident = holder.measured = False
        self._change(holder, 0)

    def rebase(self, model: str) -> None:
        """The model's footprint may have changed."""
        footprint = self._footprint(model)
        for holder in self._of.get(model, ()):
            holder.place.footprint = footprint
            if holder.resident and self._ledger.cells.base[holder.place.column] != footprint:
                self._set(holder, footprint)

    def _change(self, holder: DeviceReplica, amount: int) -> None:
        self._set(holder, amount)
        self._changed(holder)

    def _set(self, holder: DeviceReplica, amount: int) -> None:
        """Without the lock if need be: this is what it holds, whether or not it fits."""
        cells, device = self._ledger.cells, holder.place.device.index
        locked = any(cells.lock(device) for _ in range(MAX_LOCK_ATTEMPTS))
        try:
            cells.base[holder.place.column] = amount
        finally:
            if locked:
                cells.unlock(device)

    def _changed(self, holder: DeviceReplica) -> None:
        """Measurements of its neighbours from before and after cannot be compared."""
        holder.changes += 1
        self._changes[holder.place.device] += 1
        self._changes[holder.place.server] += 1

    def neighbour_changes(self, holder: DeviceReplica) -> tuple[int, int]:
        """How often they came or went: on its server, and on its device."""
        place = holder.place
        return self._changes[place.server] - holder.changes, self._changes[place.device] - holder.changes

    def at(self, server: Server) -> list[DeviceReplica]:
        return [self._there[place] for place in server.residencies if place in self._there]

    def on(self, device: Device) -> list[DeviceReplica]:
        return [holder for server in device.servers.values() for holder in self.at(server)]

    def own_usage(self, device: Device) -> tuple[int, int]:
        """Bytes that our servers surely use, and that they possibly use."""
        cells = self._ledger.cells
        loaded: dict[Server, int] = {}
        for holder in self.on(device):
            if holder.state in LOADED_STATES:
                server = holder.place.server
                loaded[server] = loaded.get(server, 0) + cells.base[holder.place.column]
        servers = device.servers.values()
        surely = sum(held_bytes(server, cells) or loaded.get(server, 0) for server in servers)
        return surely, sum(max(held_bytes(server, cells), reserved_bytes(server, cells)) for server in servers)
