"""Models that come and go: `core.placement` decides as it does for the supervisor, and here it is carried out.

`fleet[].models` of them fit on each server. A load takes a slot of its server for `load_time`, as it does where servers
load by themselves (servers.ModelMemory).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.memory import Ledger, Place
from ..core.placement import Demand, Holding, Load, Placement, ServerRoom
from ..core.pool import Pool
from ..core.replica import Event
from ..core.request import INFINITY
from .engine import Simulation
from .job import Errand
from .model_balancer import SIZE, ModelBalancer
from .scenario import Group

THINK = 0.1  # seconds between two thoughts
SOON = 0.05  # a request for a model that is nowhere is heard of within so long


class Placer:
    """Carries out what placement decides: drains, unloads, loads."""

    def __init__(
        self, simulation: Simulation, balancer: ModelBalancer, groups: Sequence[Group], placement: Placement | None
    ) -> None:
        self._simulation = simulation
        self._balancer = balancer
        self._groups = dict(zip(simulation.servers, groups, strict=True))
        self._placement = placement
        self._states: dict[tuple[str, str], tuple[str, float]] = {}  # (server, model) → what it is, since when
        self._draining: list[Load] = []
        self._thought = -INFINITY
        self.loads = 0
        self._slowest = max(float(group.load_time) for group in groups)
        if placement is not None:
            balancer.wanted = self._wanted
            simulation.every(THINK, self.think)

    def put(self, places: Mapping[str, Sequence[str]]) -> None:
        """Before the first request: these models are on these servers."""
        for server, models in places.items():
            for model in models:
                self._take_room(server, model)
                for event in (Event.LOAD, Event.LOADED):
                    self._tell(server, model, event, 0.0)
                self._states[server, model] = ("resident", -INFINITY)

    # ------------------------------------------------------------------ deciding

    def _wanted(self, now: float) -> None:
        if now - self._thought >= SOON:
            self.think(now)

    def think(self, now: float) -> None:
        self._thought = now
        self._begin_those_drained(now)
        assert self._placement is not None
        rooms = {server: self._room(server) for server in self._groups}
        for load in self._placement.decide(self._server_rooms(), rooms, self._demands(now), now):
            for server, model in load.evict:
                self._tell(server, model, Event.UNLOAD, now)
                self._states[server, model] = ("unloading", now)
            self._states[load.server, load.model] = ("loading", now)
            self._draining.append(load)
        self._begin_those_drained(now)

    def _server_rooms(self) -> list[ServerRoom]:
        held: dict[str, list[Holding]] = {server: [] for server in self._groups}
        for (server, model), (state, since) in self._states.items():
            in_flight = self._balancer.pool(model).find(server).in_flight
            held[server].append(Holding(model, SIZE, state, since, in_flight))
        models = frozenset(self._balancer.models)
        return [
            ServerRoom(server, server, tuple(held[server]), models, False, group.capacity / group.count)
            for server, group in self._groups.items()
        ]

    def _demands(self, now: float) -> dict[str, Demand]:
        return {model: self._demand(self._balancer.pool(model), now) for model in self._balancer.models}

    def _demand(self, pool: Pool, now: float) -> Demand:
        line = pool.line
        first = next(iter(line.ordered()), None)
        oldest = now - first.arrived if first is not None else 0.0
        return Demand(pool.model, SIZE, self._slowest, len(line), line.work, oldest, self._balancer.rate(pool, now))

    # ------------------------------------------------------------------ doing

    def _begin_those_drained(self, now: float) -> None:
        waiting = self._draining
        self._draining = []
        for load in waiting:
            if any(self._balancer.pool(model).find(server).in_flight for server, model in load.evict):
                self._draining.append(load)
            else:
                self._begin(load, now)

    def _begin(self, load: Load, now: float) -> None:
        for where, model in load.evict:
            self._ledger.release_base(self._place(where, model))
            del self._states[where, model]
        place = self._take_room(load.server, load.model)
        self._tell(load.server, load.model, Event.LOAD, now)
        self._ledger.cells.add(place.slot, place.device.index, 0)  # the slot that the load takes
        server = self._simulation.servers[load.server]
        seconds = float(self._groups[load.server].load_time)
        self.loads += 1
        errand = Errand(now, seconds * server.speed, lambda later: self._loaded(load, place, later))
        errand.server = server
        server.accept(errand, now, self._simulation.schedule)

    def _loaded(self, load: Load, place: Place, now: float) -> None:
        self._ledger.give(place, 0)
        self._states[load.server, load.model] = ("resident", now)
        self._tell(load.server, load.model, Event.LOADED, now)
        self._balancer.wake = now  # others may have waited for the slot
        self._wanted(now)

    def _tell(self, server: str, model: str, event: Event, now: float) -> None:
        self._simulation.carry_out(self._balancer.report(server, event, model, now=now), now)

    def _take_room(self, server: str, model: str) -> Place:
        place = self._place(server, model)
        if not self._ledger.reserve_base(place, SIZE):
            raise AssertionError(f"no room for {model} on {server}")
        return place

    def _place(self, server: str, model: str) -> Place:
        place = self._balancer.pool(model).find(server).place
        assert place is not None
        return place

    def _room(self, server: str) -> int:
        return self._ledger.room(self._ledger.devices[server])

    @property
    def _ledger(self) -> Ledger:
        assert self._balancer.ledger is not None
        return self._balancer.ledger
