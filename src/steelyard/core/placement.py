"""Which models should be loaded where, and which must go for that: pure decisions, carried out by control/placing.

All is counted in seconds that requests wait. A load costs its time; a copy is worth the waiting it saves while things
go on as of late; what goes to make room costs the waiting that follows. See docs/decisions/0015-placement.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from .copies import Copies
from .openings import Opening, Openings
from .request import INFINITY


class Holding(NamedTuple):
    """A model on a server."""

    model: str
    size: int  # bytes it holds there, or has reserved to be loaded
    state: str  # `resident`, `loading`, `unloading`
    since: float  # when it came into that state
    in_flight: int  # requests it runs there
    pinned: bool = False  # never to be unloaded


class ServerRoom(NamedTuple):
    """A server that can load and unload models."""

    server: str
    device: str
    holdings: tuple[Holding, ...]
    may_hold: frozenset[str]  # models it could load
    busy: bool = False  # a load or an unload is under way there
    capacity: float = 1.0  # seconds of work it can do in a second
    kept: int = 0  # bytes that it holds for later: room for a load there, besides the room of its device


class Demand(NamedTuple):
    """What is asked of a model now, over all workers."""

    model: str
    size: int  # bytes that a copy holds
    load_seconds: float  # to load one
    waiting: int  # requests that wait
    waiting_work: float  # seconds of work they are
    oldest: float  # seconds for which the first of them has waited
    rate: float  # seconds of work that arrive per second, of late
    pinned: bool = False


class Load(NamedTuple):
    """Load this model there, after these have been unloaded. Victims may be on another server of the same device."""

    model: str
    server: str
    evict: tuple[tuple[str, str], ...] = ()  # (server, model)
    why: str = ""  # in words


MARGIN = 2.0  # what goes is worth so much more than it seems: estimates wander, and a load cannot be taken back
MORE = 8  # copies for models that have one, decided on at once: the rest can wait for the next call
LOOKED_AT = 16  # servers, for one more copy


class Placement:
    def __init__(self, *, at_once: int = 1, horizon: float = 60.0) -> None:
        self.at_once = at_once  # loads on a device
        self.horizon = horizon  # seconds for which things are believed to go on as of late
        self._typical: dict[str, float] = {}  # seconds of work that a request of the model is

    def decide(
        self,
        servers: Sequence[ServerRoom],
        rooms: Mapping[str, int],
        demands: Mapping[str, Demand],
        now: float,
    ) -> list[Load]:
        """What to load now. `rooms`: bytes of each device that a load may take (not held, reserved, or others').

        To be called again and again; what was decided before is seen in `servers` as loading or unloading.
        """
        self._learn(demands)
        copies = Copies(servers, demands, self._typical, self.horizon, now)
        openings = Openings(servers, rooms, copies, self.at_once)
        loads: list[Load] = []
        put_off = False
        for demand in _without_a_copy(copies):
            first = _first(copies, openings, demand)
            if first is not None:
                loads.append(_decided(copies, openings, demand, first))
            put_off = put_off or (first is None and openings.soon(demand) < INFINITY)
        # Who has none comes before who wants one more.
        for _ in range(0 if put_off else MORE):
            more = _one_more(copies, openings)
            if more is None:
                break
            loads.append(_decided(copies, openings, *more))
        return loads

    def _learn(self, demands: Mapping[str, Demand]) -> None:
        for model in [m for m in self._typical if m not in demands]:
            del self._typical[model]
        for model, demand in demands.items():
            if demand.waiting and demand.waiting_work > 0.0:
                self._typical[model] = demand.waiting_work / demand.waiting


def _without_a_copy(copies: Copies) -> list[Demand]:
    """Pinned ones, then those for whom somebody waits, the longest first."""
    wanted = [d for m, d in copies.demands.items() if (d.pinned or d.waiting) and not copies.holders(m)]
    return sorted(wanted, key=lambda d: (not d.pinned, -d.oldest, d.model))


def _first(copies: Copies, openings: Openings, demand: Demand) -> Opening | None:
    """Where it is served soonest and does the least harm; None: nowhere, for now."""
    found = (openings.at(server, demand, for_a_first=True) for server in openings.free(demand.model))
    able = [opening for opening in found if opening is not None]
    best = min(able, key=lambda o: (o.loss + copies.trouble(demand, o.server), o.rank), default=None)
    if best is not None and best.evict and demand.waiting * openings.soon(demand) < best.loss:
        return None  # better to wait for a place that is about to be free
    return best


def _one_more(copies: Copies, openings: Openings) -> tuple[Demand, Opening] | None:
    """The copy that saves the most waiting, if any saves more than it costs."""
    most, best = 0.0, None
    for demand in copies.strained():
        for server in _calm(copies, openings.free(demand.model)):
            gain = copies.saved(demand, server) - demand.load_seconds * (1.0 + copies.held_up(server))
            if gain <= most:
                continue
            opening = openings.at(server, demand, for_a_first=False)
            if opening is not None and gain - MARGIN * opening.loss > most:
                most, best = gain - MARGIN * opening.loss, (demand, opening)
    return best


def _calm(copies: Copies, servers: Sequence[str]) -> Sequence[str]:
    """Of very many servers, those with the least to do."""
    return nsmallest(LOOKED_AT, servers, key=copies.held_up) if len(servers) > LOOKED_AT else servers


def _decided(copies: Copies, openings: Openings, demand: Demand, opening: Opening) -> Load:
    load = Load(demand.model, opening.server, opening.evict, _why(copies, demand, opening))
    openings.use(opening, demand)
    return load


def _why(copies: Copies, demand: Demand, opening: Opening) -> str:
    held = len(copies.holders(demand.model))
    if demand.waiting:
        noun = "request waits" if demand.waiting == 1 else "requests wait"
        text = f"{demand.waiting} {noun}, {demand.waiting_work:.1f} s of work"
    else:
        text = f"{demand.rate:.2f} s of work a second" if held else "pinned"
    text += f", for {held} {'copy' if held == 1 else 'copies'}" if held else ""
    return "; ".join([text, *(copies.excuse(model) for _, model in opening.evict)])
