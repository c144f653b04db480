"""What the placer knows, in the form in which core.placement decides on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.placement import Demand, Holding, ServerRoom
from ...core.replica import State
from ..probing.target import Key
from .hands import Room, Wish
from .host import Copy, Host, Phase
from .load_times import LoadTimes
from .setbacks import Setbacks

GOING, LOADING = "unloading", "loading"
STATES = {
    Phase.RESIDENT: "resident",
    Phase.ROOMED: LOADING,
    Phase.LOADING: LOADING,
    Phase.DRAINING: GOING,
    Phase.UNLOADING: GOING,
    Phase.UNSURE: GOING,  # it may hold memory, and nobody can count on it
}
AWAY = (State.DRAINING, State.UNREACHABLE)  # loaded or not, it serves nobody


def server_room(
    host: Host, room: Room, rooms: Mapping[str, int], setbacks: Setbacks, running: Mapping[Key, int], now: float
) -> ServerRoom:
    copies = host.copies.values()
    there = room.room_at(next(iter(host.copies.values())).key)  # whichever: it is one process
    return ServerRoom(
        host.name,
        host.device,
        tuple(_holding(copy, room, running) for copy in copies if _is_held(copy)),
        frozenset(copy.model for copy in copies if _may_come(copy) and setbacks.may_try(copy.key, now)),
        busy=host.busy or host.is_unsure,
        kept=max(0, there - rooms[host.device]) if host.device in rooms else 0,
    )


def _is_held(copy: Copy) -> bool:
    return copy.phase is not Phase.ABSENT or copy.ordered is not None


def _holding(copy: Copy, room: Room, running: Mapping[Key, int]) -> Holding:
    if copy.ordered is not None and copy.phase is Phase.ABSENT:
        # Its victims drain or unload: it has no bytes yet, but it comes, and no second server must make room for it.
        return Holding(copy.model, 0, LOADING, copy.ordered, 0, copy.settings.pinned)
    resident = copy.phase is Phase.RESIDENT
    size = room.footprint(copy.model) if resident else copy.size
    state = GOING if resident and copy.state in AWAY else STATES[copy.phase]
    return Holding(copy.model, size, state, copy.since, running.get(copy.key, 0), copy.settings.pinned)


def _may_come(copy: Copy) -> bool:
    """An operator who drains a replica does not want it to be loaded there."""
    return copy.state is not State.DRAINING


def demands(copies: Iterable[Copy], wishes: Mapping[str, Wish], room: Room, times: LoadTimes) -> dict[str, Demand]:
    found: dict[str, Demand] = {}
    for copy in copies:
        model = copy.model
        if model not in found:
            wish = wishes.get(model, Wish())
            seconds = times.of(model, copy.settings.load_time)
            found[model] = Demand(model, room.footprint(model), seconds, *wish[:3], wish.rate, copy.settings.pinned)
    return found
