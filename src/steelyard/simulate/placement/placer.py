"""Carries out what `core.placement` decides, as for the supervisor: models come and go.

`fleet[].models` of them fit on each server. A load takes a slot of its server for `load_time`, as it does in
servers.ModelMemory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.memory.ledger import Residency
from ...core.placement.planner import LoadDecision, ModelCopy, ModelDemand, PlacementPlanner, ServerState
from ...core.pool import Pool
from ...core.replica import Event
from ...core.request import INFINITY
from ..engine.job import BackgroundJob
from ..engine.simulation import Simulation
from ..scenario.schema import ReplicaGroup
from .balancer import MODEL_BYTES, MultiModelBalancer

DECISION_INTERVAL_SECONDS = 0.1
MIN_DECISION_GAP_SECONDS = 0.05  # after which a request for a missing model triggers a decision


class SimulatedPlacer:
    def __init__(
        self,
        simulation: Simulation,
        balancer: MultiModelBalancer,
        groups: Sequence[ReplicaGroup],
        placement: PlacementPlanner | None,
    ) -> None:
        self._simulation, self._balancer, self._placement = simulation, balancer, placement
        self._ledger = balancer.ledger
        self._groups = dict(zip(simulation.servers, groups, strict=True))
        self._states: dict[tuple[str, str], tuple[str, float]] = {}  # (server, model) → what it is, since when
        self._draining: list[LoadDecision] = []
        self._last_decision = -INFINITY
        self.loads = 0
        self._longest_load_seconds = max(float(group.load_time) for group in groups)
        if placement is not None:
            balancer.on_model_missing = self._on_model_missing
            simulation.call_every(DECISION_INTERVAL_SECONDS, self.decide)

    def place_initially(self, places: Mapping[str, Sequence[str]]) -> None:
        """Before the first request: these models are on these servers."""
        for server, models in places.items():
            for model in models:
                self._reserve(server, model)
                for event in (Event.LOAD, Event.LOADED):
                    self._report(server, model, event, 0.0)
                self._states[server, model] = ("resident", -INFINITY)

    def _on_model_missing(self, now: float) -> None:
        if now - self._last_decision >= MIN_DECISION_GAP_SECONDS:
            self.decide(now)

    def decide(self, now: float) -> None:
        self._last_decision = now
        self._start_drained_loads(now)
        assert self._placement is not None
        rooms = {server: self._ledger.free_bytes(self._ledger.devices[server]) for server in self._groups}
        demands = {model: self._demand(self._balancer.pool(model), now) for model in self._balancer.models}
        for load in self._placement.decide(self._server_rooms(), rooms, demands, now):
            for server, model in load.evict:
                self._report(server, model, Event.UNLOAD, now)
                self._states[server, model] = ("unloading", now)
            self._states[load.server, load.model] = ("loading", now)
            self._draining.append(load)
        self._start_drained_loads(now)

    def _server_rooms(self) -> list[ServerState]:
        held: dict[str, list[ModelCopy]] = {server: [] for server in self._groups}
        for (server, model), (state, since) in self._states.items():
            in_flight = self._balancer.pool(model).find(server).in_flight
            held[server].append(ModelCopy(model, MODEL_BYTES, state, since, in_flight))
        models = frozenset(self._balancer.models)
        return [
            ServerState(server, server, tuple(held[server]), models, False, group.capacity / group.count)
            for server, group in self._groups.items()
        ]

    def _demand(self, pool: Pool, now: float) -> ModelDemand:
        queue, offered = pool.queue, self._balancer.offered_load(pool, now)
        first = next(iter(queue.ordered()), None)
        oldest = now - first.arrived if first is not None else 0.0
        load_seconds = self._longest_load_seconds
        return ModelDemand(pool.model, MODEL_BYTES, load_seconds, len(queue), queue.work, oldest, offered)

    def _start_drained_loads(self, now: float) -> None:
        waiting, self._draining = self._draining, []
        for load in waiting:
            if any(self._balancer.pool(model).find(server).in_flight for server, model in load.evict):
                self._draining.append(load)
            else:
                self._start_load(load, now)

    def _start_load(self, load: LoadDecision, now: float) -> None:
        for where, model in load.evict:
            self._ledger.release_model(self._place(where, model))
            del self._states[where, model]
        place = self._reserve(load.server, load.model)
        self._report(load.server, load.model, Event.LOAD, now)
        self._ledger.cells.add(place.column, place.device.index, 0)  # the slot that the load takes
        server = self._simulation.servers[load.server]
        seconds = float(self._groups[load.server].load_time)
        self.loads += 1
        job = BackgroundJob(now, seconds * server.speed, lambda later: self._loaded(load, place, later))
        job.server = server
        server.accept(job, now, self._simulation.schedule)

    def _loaded(self, load: LoadDecision, place: Residency, now: float) -> None:
        self._ledger.release(place, 0)
        self._states[load.server, load.model] = ("resident", now)
        self._report(load.server, load.model, Event.LOADED, now)
        self._balancer.wake = now  # others may have waited for the slot
        self._on_model_missing(now)

    def _report(self, server: str, model: str, event: Event, now: float) -> None:
        self._simulation.carry_out(self._balancer.report(server, event, model, now=now), now)

    def _reserve(self, server: str, model: str) -> Residency:
        place = self._place(server, model)
        if not self._ledger.reserve_model(place, MODEL_BYTES):
            raise AssertionError(f"no room for {model} on {server}")
        return place

    def _place(self, server: str, model: str) -> Residency:
        place = self._balancer.pool(model).find(server).residency
        assert place is not None
        return place


def perfect_placement(shares: Sequence[float], rooms: Sequence[int]) -> list[list[int]]:
    """The models that each server holds, if popularity is known beforehand and constant.

    `shares`: of all work, by model; `rooms`: models that fit, by server.
    """
    counts = _copy_counts(shares, rooms)
    held: list[list[int]] = [[] for _ in rooms]
    work = [0.0] * len(rooms)
    for model in sorted(range(len(shares)), key=lambda m: (-shares[m] / max(1, counts[m]), m)):
        for _ in range(counts[model]):
            able = [s for s in range(len(rooms)) if len(held[s]) < rooms[s] and model not in held[s]]
            if not able:
                break
            server = min(able, key=lambda s: (work[s], s))
            held[server].append(model)
            work[server] += shares[model] / counts[model]
    return held


def _copy_counts(shares: Sequence[float], rooms: Sequence[int]) -> list[int]:
    """One more copy takes share / n - share / (n + 1) off each of the others."""
    places = sum(rooms)
    counts = [0] * len(shares)
    for model in sorted(range(len(shares)), key=lambda m: (-shares[m], m))[:places]:
        counts[model] = 1
    for _ in range(places - sum(counts)):
        able = [m for m in range(len(shares)) if 0 < counts[m] < len(rooms)]
        if not able:
            break
        counts[max(able, key=lambda m: (shares[m] / (counts[m] * (counts[m] + 1)), -m))] += 1
    return counts
