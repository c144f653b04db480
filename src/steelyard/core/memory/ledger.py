"""The memory ledger: what each device has, and what models and running requests hold of it.

Idea: a request reserves its bytes at dispatch and returns them when its attempt ends.

Formula: a device gives out budget = capacity × (1 − headroom). A server process counts once, however many models it
runs, with max(reserved, measured): what its allocator keeps is room for the next request there, and for no other
server. Several processes may share the cells that hold the numbers (link/shared_ledger.py), and so the budget.

Limits: reservations are estimates (request_size.py); an attempt that was cut off counts until it should be over.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from ..request import INFINITY

if TYPE_CHECKING:
    from ..pool import Pool
    from ..request import Attempt, Request

EARMARK_SECONDS = 1.0  # unless its owner renews it


class IntCells(Protocol):
    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, amount: int, /) -> None: ...


class LedgerCells(Protocol):
    """Bytes by column (a model on a server) and by device."""

    shared: bool  # may another process change them?
    base: IntCells  # by column: held by the model with nothing running, or reserved to load it
    held: IntCells  # by column: held by its server as a whole, as last measured
    idle: IntCells  # by column: the same, with nothing running
    external: IntCells  # by device: used by processes we do not manage

    def lock(self, device: int) -> bool:
        """Until `unlock` no other process may take anything of this device. False: another holds the lock."""

    def unlock(self, device: int) -> None: ...

    def running(self, column: int) -> int:
        """Reserved by requests there, of all workers."""

    def total(self, device: int) -> int:
        """Reserved by requests on the device, of all workers."""

    def count(self, device: int) -> int:
        """Requests on the device, of all workers."""

    def add(self, column: int, device: int, amount: int) -> None:
        """A request of this worker has reserved this."""

    def subtract(self, column: int, device: int, amount: int) -> None: ...

    def earmark(self, device: int, until: float) -> None:
        """Until then only this worker may take anything there; 0.0: all may."""

    def earmarked_by_another(self, device: int, now: float) -> bool: ...

    def set_lease(self, column: int, until: float) -> None:
        """If this worker dies, what it has there counts until then."""


class LocalCells:
    """For a process that is alone with its devices: library, simulator, tests."""

    shared = False

    def __init__(self) -> None:
        self.base: IntCells = defaultdict(int)
        self.held: IntCells = defaultdict(int)
        self.idle: IntCells = defaultdict(int)
        self.external: IntCells = defaultdict(int)
        self._running: dict[int, int] = defaultdict(int)
        self._total: dict[int, int] = defaultdict(int)
        self._count: dict[int, int] = defaultdict(int)

    def lock(self, device: int) -> bool:
        return True

    def unlock(self, device: int) -> None:
        pass

    def running(self, column: int) -> int:
        return self._running[column]

    def total(self, device: int) -> int:
        return self._total[device]

    def count(self, device: int) -> int:
        return self._count[device]

    def add(self, column: int, device: int, amount: int) -> None:
        self._running[column] += amount
        self._total[device] += amount
        self._count[device] += 1

    def subtract(self, column: int, device: int, amount: int) -> None:
        self._running[column] -= amount
        self._total[device] -= amount
        self._count[device] -= 1

    def earmark(self, device: int, until: float) -> None:
        pass

    def earmarked_by_another(self, device: int, now: float) -> bool:
        return False

    def set_lease(self, column: int, until: float) -> None:
        pass


class Device:
    """A GPU, or a group of processes with a limit, that servers share."""

    def __init__(self, name: str, index: int, capacity: int, headroom: float, concurrency: float) -> None:
        self.name = name
        self.index = index
        self.capacity = capacity  # 0: not known yet, and nothing is refused for it
        self.headroom = headroom
        self.concurrency = concurrency  # requests at once, of all models together
        self.servers: dict[str, Server] = {}
        self.waiting: dict[Pool, None] = {}  # pools with requests that wait for room here
        self.earmarked_for: Request | None = None  # the request that room is saved up for
        self.earmarked_until = 0.0

    @property
    def budget(self) -> int:
        return int(self.capacity * (1.0 - self.headroom))

    def __repr__(self) -> str:
        return f"<Device {self.name} {self.capacity}>"


class Server:
    __slots__ = ("device", "exclusive_attempt", "exclusive_until", "name", "residencies")

    def __init__(self, name: str, device: Device) -> None:
        self.name = name
        self.device = device
        self.exclusive_attempt: Attempt | None = None  # it has the server to itself, to be measured
        self.exclusive_until = 0.0
        self.residencies: list[Residency] = []


class Residency:
    """One model on one server."""

    __slots__ = ("column", "footprint", "permanent", "server")

    def __init__(self, server: Server, column: int, permanent: bool) -> None:
        self.server = server
        self.column = column
        self.permanent = permanent  # never unloaded to make room
        self.footprint = 0  # what the model holds when it is resident

    @property
    def device(self) -> Device:
        return self.server.device


class MemoryLedger:
    def __init__(self, cells: LedgerCells | None = None) -> None:
        self.cells: LedgerCells = LocalCells() if cells is None else cells
        self.devices: dict[str, Device] = {}
        self.freed: dict[Device, None] = {}  # where room became free that others may wait for
        self._lingering: list[tuple[float, int, Residency, int]] = []  # a heap: until when, number, where, bytes
        self._lingered = 0
        self.wake = INFINITY  # when `expire` has something to do
        self.release_count = 0

    def set_device(
        self, name: str, index: int, capacity: int, headroom: float, concurrency: float = INFINITY
    ) -> Device:
        device = self.devices.get(name)
        if device is None or device.index != index:
            device = self.devices[name] = Device(name, index, capacity, headroom, concurrency)
        device.capacity, device.headroom, device.concurrency = capacity, headroom, concurrency
        return device

    def remove_device(self, name: str) -> None:
        self.devices.pop(name, None)

    def add_residency(self, device: Device, server: str, column: int, *, permanent: bool = True) -> Residency:
        home = device.servers.get(server)
        if home is None:
            home = device.servers[server] = Server(server, device)
        place = Residency(home, column, permanent)
        home.residencies.append(place)
        return place

    def remove_residency(self, place: Residency) -> None:
        """What still runs there counts for the device until it is released."""
        home = place.server
        if place in home.residencies:
            home.residencies.remove(place)
        if not home.residencies and home.device.servers.get(home.name) is home:
            del home.device.servers[home.name]

    def usage(self, device: Device) -> tuple[int, int]:
        """Bytes given out, and bytes not available: those, what servers hold beyond them, and external use."""
        cells = self.cells
        reserved = explained = 0
        taken = cells.external[device.index]
        for server in device.servers.values():
            mine, held, running = self._of(server)
            reserved += mine
            explained += running
            taken += mine if mine > held else held
        # Requests that run on replicas which left, or which this process never knew.
        rest = cells.total(device.index) - explained
        return (reserved + rest, taken + rest) if rest > 0 else (reserved, taken)

    def _of(self, server: Server) -> tuple[int, int, int]:
        """Reserved on a server, held by it, and the requests' part of the first."""
        cells = self.cells
        bases = idle = running = held = 0
        for place in server.residencies:
            column = place.column
            bases += cells.base[column]
            running += cells.running(column)
            idle = max(idle, cells.idle[column])
            held = max(held, cells.held[column])
        return (bases if bases > idle else idle) + running, held, running

    def used(self, device: Device) -> int:
        return self.usage(device)[1]

    def reserved(self, device: Device) -> int:
        return self.usage(device)[0]

    def is_busy(self, server: Server) -> bool:
        return any(self.cells.running(place.column) for place in server.residencies)

    def free_bytes(self, device: Device) -> int:
        return max(0, device.budget - self.used(device))

    def free_bytes_on(self, server: Server) -> int:
        """For a request or a model on this server: what its allocator keeps is room there."""
        device = server.device
        reserved, taken = self.usage(device)
        mine, held, _ = self._of(server)
        return max(0, device.budget - max(reserved, taken - max(0, held - mine)))

    def fits(self, place: Residency, amount: int, seen: tuple[int, int] | None = None) -> bool:
        """Is there room for a request of this size now? No lock: `reserve` decides. `seen`: `usage`, if known."""
        server = place.server
        device = server.device
        if device.concurrency < INFINITY and self.cells.count(device.index) >= device.concurrency:
            return False
        if not device.capacity or not amount:
            return True
        reserved, taken = self.usage(device) if seen is None else seen
        if reserved + amount > device.budget:
            return False
        mine, held, _ = self._of(server)
        taken += max(mine + amount, held) - max(mine, held)
        if taken <= device.budget:
            return True
        # In the way is only what other servers keep unused. With nothing else running it may use half of the headroom
        # for that, or it would never run.
        return taken <= device.capacity * (1.0 - 0.5 * device.headroom) and not self.cells.count(device.index)

    def max_request_bytes(self, place: Residency, stays: dict[Device, int] | None = None) -> int:
        """The largest request that could run there with all movable models gone. `stays`: a cache."""
        device = place.server.device
        fixed = None if stays is None else stays.get(device)
        if fixed is None:
            fixed = sum([self._stays(server) for server in device.servers.values()])
            if stays is not None:
                stays[device] = fixed
        if not place.permanent:
            fixed += self._stays(place.server, place) - self._stays(place.server)
        return device.budget - fixed

    def _stays(self, server: Server, besides: Residency | None = None) -> int:
        """Bytes that cannot be evicted from a server, with `besides` loaded there."""
        cells = self.cells
        bases = idle = movable = 0
        for each in server.residencies:
            base = cells.base[each.column]
            if each.permanent or each is besides:
                bases += max(each.footprint, base)
            else:
                movable += base
            idle = max(idle, cells.idle[each.column])
        return max(bases, idle - movable)

    def reserve(self, place: Residency, amount: int) -> bool:
        """False: no room, or another process holds the lock."""
        cells, device = self.cells, place.server.device
        if not cells.lock(device.index):
            return False
        try:
            if not self.fits(place, amount):
                return False
            cells.add(place.column, device.index, amount)
            return True
        finally:
            cells.unlock(device.index)

    def add(self, place: Residency, amount: int) -> None:
        """What runs there already, and counts whatever room there is."""
        self.cells.add(place.column, place.server.device.index, amount)

    def reserve_all(self, place: Residency) -> int:
        """Reserves all there is, for a request of unknown size: it runs alone. 0: not now."""
        cells, device = self.cells, place.server.device
        if cells.count(device.index) or not cells.lock(device.index):
            return 0
        try:
            amount = self.free_bytes_on(place.server)
            if cells.count(device.index) or amount <= 0:
                return 0
            cells.add(place.column, device.index, amount)
            return amount
        finally:
            cells.unlock(device.index)

    def release(self, place: Residency, amount: int) -> None:
        device = place.server.device
        self.cells.subtract(place.column, device.index, amount)
        self.release_count += 1
        if device.waiting:
            self.freed[device] = None

    def release_at(self, place: Residency, amount: int, until: float) -> None:
        """The attempt was cut off, but its server holds the memory until then."""
        self._lingered += 1
        heappush(self._lingering, (until, self._lingered, place, amount))
        self.wake = self._lingering[0][0]

    def expire(self, now: float) -> None:
        while self._lingering and self._lingering[0][0] <= now:
            _, _, place, amount = heappop(self._lingering)
            self.release(place, amount)
        self.wake = self._lingering[0][0] if self._lingering else INFINITY

    def reserve_model(self, place: Residency, amount: int) -> bool:
        """Reserves room to load a model there. False: there is none."""
        cells, device = self.cells, place.server.device
        if not cells.lock(device.index):
            return False
        try:
            more = amount - cells.base[place.column]
            if more > 0 and device.capacity and more > self.free_bytes_on(place.server):
                return False
            cells.base[place.column] = amount
            return True
        finally:
            cells.unlock(device.index)

    def release_model(self, place: Residency) -> None:
        self.cells.base[place.column] = 0

    def set_measured(self, place: Residency, held: int) -> None:
        for each in place.server.residencies:
            self.cells.held[each.column] = held

    def set_measured_idle(self, place: Residency, amount: int) -> None:
        for each in place.server.residencies:
            self.cells.idle[each.column] = amount
