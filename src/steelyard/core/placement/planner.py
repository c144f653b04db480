"""Which models to load where, and which to unload for that; carried out by control/placement.

Idea: all is counted in seconds that requests wait. A load costs its time; a copy is worth the waiting it saves at the
recent rate of requests; an eviction costs the waiting that follows.

Source: docs/decisions/0015-placement.md. Limits: greedy, one decision at a time; rates are of the recent past.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from ..request import INFINITY
from .candidates import PlacementCandidate, PlacementCandidates
from .copies import ModelCopies


class ModelCopy(NamedTuple):
    model: str
    size: int  # bytes held, or reserved to be loaded
    state: str  # `resident`, `loading`, `unloading`
    since: float
    in_flight: int
    pinned: bool = False  # never unloaded


class ServerState(NamedTuple):
    server: str
    device: str
    copies: tuple[ModelCopy, ...]
    loadable_models: frozenset[str]
    busy: bool = False  # a load or an unload is under way
    capacity: float = 1.0  # seconds of work per second
    cached_bytes: int = 0  # kept by its allocator: room for a load there, besides that of its device


class ModelDemand(NamedTuple):
    model: str
    size: int  # bytes of a copy
    load_seconds: float
    waiting: int  # requests
    waiting_work: float  # their seconds of work
    oldest: float  # seconds for which the first has waited
    rate: float  # recent seconds of work per second
    pinned: bool = False


class LoadDecision(NamedTuple):
    """Load this model there, after these were unloaded, perhaps from another server of the device."""

    model: str
    server: str
    evict: tuple[tuple[str, str], ...] = ()  # (server, model)
    reason: str = ""  # in words


EVICTION_LOSS_FACTOR = 2.0  # estimates wander, and a load cannot be taken back
MAX_EXTRA_COPIES = 8  # in one call
MAX_SERVERS_COMPARED = 16  # for one more copy


class PlacementPlanner:
    def __init__(self, *, at_once: int = 1, horizon: float = 60.0) -> None:
        self.max_concurrent_loads = at_once  # loads on a device
        self.horizon_seconds = horizon  # seconds for which recent rates are believed to last
        self._typical: dict[str, float] = {}  # seconds of work that a request of the model is

    def decide(
        self,
        servers: Sequence[ServerState],
        rooms: Mapping[str, int],
        demands: Mapping[str, ModelDemand],
        now: float,
    ) -> list[LoadDecision]:
        """What to load now. `rooms`: free bytes of each device. `servers` shows earlier decisions as loading."""
        self._learn(demands)
        copies = ModelCopies(servers, demands, self._typical, self.horizon_seconds, now)
        openings = PlacementCandidates(servers, rooms, copies, self.max_concurrent_loads)
        loads: list[LoadDecision] = []
        put_off = False
        for demand in _without_a_copy(copies):
            first = _first_copy(copies, openings, demand)
            if first is not None:
                loads.append(_commit(copies, openings, demand, first))
            put_off = put_off or (first is None and openings.seconds_until_free(demand) < INFINITY)
        # A first copy comes before a second one.
        for _ in range(0 if put_off else MAX_EXTRA_COPIES):
            more = _one_more(copies, openings)
            if more is None:
                break
            loads.append(_commit(copies, openings, *more))
        return loads

    def _learn(self, demands: Mapping[str, ModelDemand]) -> None:
        for model in [m for m in self._typical if m not in demands]:
            del self._typical[model]
        for model, demand in demands.items():
            if demand.waiting and demand.waiting_work > 0.0:
                self._typical[model] = demand.waiting_work / demand.waiting


def _without_a_copy(copies: ModelCopies) -> list[ModelDemand]:
    """Pinned ones, then those with waiting requests, the longest first."""
    wanted = [d for m, d in copies.demands.items() if (d.pinned or d.waiting) and not copies.holders(m)]
    return sorted(wanted, key=lambda d: (not d.pinned, -d.oldest, d.model))


def _first_copy(copies: ModelCopies, openings: PlacementCandidates, demand: ModelDemand) -> PlacementCandidate | None:
    """Where it is served soonest with the least loss; None: nowhere, for now."""
    found = (openings.candidate_at(server, demand, for_a_first=True) for server in openings.free_servers(demand.model))
    able = [opening for opening in found if opening is not None]
    best = min(able, key=lambda o: (o.loss + copies.waiting_cost(demand, o.server), o.rank), default=None)
    if best is not None and best.evict and demand.waiting * openings.seconds_until_free(demand) < best.loss:
        return None  # better to wait for a place that is about to be free
    return best


def _one_more(copies: ModelCopies, openings: PlacementCandidates) -> tuple[ModelDemand, PlacementCandidate] | None:
    """The copy that saves the most waiting, if any saves more than it costs."""
    most, best = 0.0, None
    for demand in copies.strained():
        for server in _least_loaded(copies, openings.free_servers(demand.model)):
            gain = copies.waiting_saved(demand, server) - demand.load_seconds * (1.0 + copies.blocked_requests(server))
            if gain <= most:
                continue
            opening = openings.candidate_at(server, demand, for_a_first=False)
            if opening is not None and gain - EVICTION_LOSS_FACTOR * opening.loss > most:
                most, best = gain - EVICTION_LOSS_FACTOR * opening.loss, (demand, opening)
    return best


def _least_loaded(copies: ModelCopies, servers: Sequence[str]) -> Sequence[str]:
    if len(servers) <= MAX_SERVERS_COMPARED:
        return servers
    return nsmallest(MAX_SERVERS_COMPARED, servers, key=copies.blocked_requests)


def _commit(
    copies: ModelCopies, openings: PlacementCandidates, demand: ModelDemand, opening: PlacementCandidate
) -> LoadDecision:
    load = LoadDecision(demand.model, opening.server, opening.evict, _reason(copies, demand, opening))
    openings.commit(opening, demand)
    return load


def _reason(copies: ModelCopies, demand: ModelDemand, opening: PlacementCandidate) -> str:
    held = len(copies.holders(demand.model))
    if demand.waiting:
        noun = "request waits" if demand.waiting == 1 else "requests wait"
        text = f"{demand.waiting} {noun}, {demand.waiting_work:.1f} s of work"
    else:
        text = f"{demand.rate:.2f} s of work a second" if held else "pinned"
    text += f", for {held} {'copy' if held == 1 else 'copies'}" if held else ""
    return "; ".join([text, *(copies.eviction_reason(model) for _, model in opening.evict)])
