"""Servers on which a model could be loaded now, and what must be evicted there first.

A server is possible if it can load the model, has no copy and its device has a known size; free if fewer than
`at_once` loads and unloads are under way there. Where room is short, the least-loss set is evicted (eviction.py). A
device on which something is unloaded is skipped until its room is known. Source: docs/decisions/0015-placement.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..request import INFINITY
from .copies import ModelCopies
from .eviction import least_loss_set

if TYPE_CHECKING:
    from .planner import ModelCopy, ModelDemand, ServerState

UNLIMITED_BYTES = 1 << 62  # where memory is not counted


class PlacementCandidate(NamedTuple):
    """A server that could load a model, once these are gone from its device."""

    server: str
    evict: tuple[tuple[str, str], ...]  # (server, model)
    loss: float  # seconds
    rank: tuple[int, int, str]  # among equals: requests there, models there, name


class PlacementCandidates:
    """Devices, their room, and what is under way there, changed along with each decision."""

    def __init__(
        self, servers: Sequence[ServerState], rooms: Mapping[str, int], copies: ModelCopies, at_once: int
    ) -> None:
        self._copies = copies
        self._at_once = at_once
        self._servers = {s.server: s for s in servers}
        # A server of no device is alone with its memory, which is not counted.
        self._home = {s.server: s.device or f"{s.server} itself" for s in servers}
        self._room = {**rooms, **{self._home[s.server]: UNLIMITED_BYTES for s in servers if not s.device}}
        self._kept = {s.server: s.cached_bytes for s in servers}
        self._mates: dict[str, list[str]] = {}  # the servers of each device
        self._under_way: dict[str, int] = {}  # loads and unloads on each device
        self._making_room: set[str] = set()  # devices whose room is known only when that is done
        for s in servers:
            device = self._home[s.server]
            states = [copy.state for copy in s.copies]
            self._mates.setdefault(device, []).append(s.server)
            under_way = max(len(states) - states.count("resident"), int(s.busy))
            self._under_way[device] = self._under_way.get(device, 0) + under_way
            if "unloading" in states:
                self._making_room.add(device)

    def free_servers(self, model: str) -> list[str]:
        return [s for s in self._possible(model) if self._is_free(s)]

    def seconds_until_free(self, demand: ModelDemand) -> float:
        """Seconds until it could be loaded without an eviction, once something else is done; INFINITY: never."""
        busy = (s for s in self._possible(demand.model) if not self._is_free(s))
        return min((self._free_in(s) for s in busy if demand.size <= self._room_at(s)), default=INFINITY)

    def _room_at(self, server: str) -> int:
        return self._room[self._home[server]] + self._kept[server]

    def _free_in(self, server: str) -> float:
        mates = (self._copies.by_server[s].values() for s in self._mates[self._home[server]])
        return max((self._copies.loaded_in(h) for held in mates for h in held if h.state == "loading"), default=0.0)

    def _possible(self, model: str) -> list[str]:
        there, holders = self._copies.by_server, self._copies.holders(model)
        return [
            server
            for server, room in self._servers.items()
            if model in room.loadable_models
            and model not in there[server]
            and server not in holders
            and self._home[server] in self._room
        ]

    def _is_free(self, server: str) -> bool:
        device = self._home[server]
        is_busy = self._servers[server].busy or device in self._making_room
        return not is_busy and self._under_way[device] < self._at_once

    def candidate_at(self, server: str, demand: ModelDemand, *, for_a_first: bool) -> PlacementCandidate | None:
        """None: it does not fit, whatever is evicted."""
        device, there = self._home[server], self._copies.by_server[server]
        rank = sum(h.in_flight for h in there.values()), len(there), server
        short = demand.size - self._room_at(server)
        if short <= 0:
            return PlacementCandidate(server, (), 0.0, rank)
        victims = self._victims(device, demand.model, for_a_first)
        losses = [self._copies.eviction_loss(where, copy) for where, copy in victims]
        chosen = least_loss_set(losses, [copy.size for _, copy in victims], short)
        if chosen is None:
            return None
        evict = tuple((victims[i][0], victims[i][1].model) for i in chosen)
        return PlacementCandidate(server, evict, sum(losses[i] for i in chosen), rank)

    def _victims(self, device: str, model: str, for_a_first: bool) -> list[tuple[str, ModelCopy]]:
        return [
            (server, copy)
            for server in self._mates[device]
            for copy in self._copies.by_server[server].values()
            if copy.model != model and self._copies.may_evict(server, copy, for_a_first=for_a_first)
        ]

    def commit(self, opening: PlacementCandidate, demand: ModelDemand) -> None:
        device = self._home[opening.server]
        for server, model in opening.evict:
            self._room[device] += self._copies.by_server[server][model].size
            self._copies.remove(model, server)
        self._room[device] -= max(0, demand.size - self._kept[opening.server])
        self._kept[opening.server] = max(0, self._kept[opening.server] - demand.size)
        self._copies.add(demand.model, opening.server)
        self._under_way[device] += 1
        if opening.evict:
            self._making_room.add(device)
