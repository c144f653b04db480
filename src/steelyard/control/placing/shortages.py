"""Models that somebody waits for, and that have no place: said with numbers, for only a person can help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...core.placement import Demand, Holding, Load, ServerRoom
from ...units import show_size
from ..views import Alarm

WAITED = 5.0  # seconds before it is worth an alarm
NAMED = 3  # devices, and models on each


class Shortages:
    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._why: dict[str, str] = {}

    def see(
        self,
        servers: Sequence[ServerRoom],
        rooms: Mapping[str, int],
        budgets: Mapping[str, int],
        demands: Mapping[str, Demand],
        loads: Iterable[Load],
        now: float,
    ) -> None:
        """What was decided just now."""
        there = {holding.model for server in servers for holding in server.holdings} | {load.model for load in loads}
        short = {m: d for m, d in demands.items() if (d.waiting or d.pinned) and m not in there}
        self._since = {model: self._since.get(model, now) for model in short}
        self._why = {model: why for model, why in self._why.items() if model in short}
        busy = {server.device for server in servers if server.busy}
        for model, demand in short.items():
            able = {s.device: None for s in servers if model in s.may_hold and s.device in rooms}
            if able and not busy & able.keys():  # else something is under way, or it failed there for another reason
                places = (_place(d, servers, rooms[d], budgets.get(d, 0)) for d in list(able)[:NAMED])
                needs = f"{model} has no place: it needs {show_size(demand.size)}"
                self._why[model] = "; ".join([needs, *places])

    def alarms(self, now: float) -> Iterator[Alarm]:
        for model, why in self._why.items():
            if now - self._since[model] >= WAITED:
                yield Alarm(code="no_room", what=why, age=now - self._since[model], model=model)


def _place(device: str, servers: Iterable[ServerRoom], room: int, budget: int) -> str:
    held = [holding for server in servers if server.device == device for holding in server.holdings]
    pinned = [holding for holding in held if holding.pinned]
    busy = [holding for holding in held if holding.in_flight and not holding.pinned]
    parts = [f"{device} may give out {show_size(budget)}, {show_size(room)} of it free"]
    parts += [f"{word}: {_named(them)}" for word, them in (("pinned", pinned), ("busy", busy)) if them]
    return ", ".join(parts)


def _named(holdings: Sequence[Holding]) -> str:
    names = [f"{holding.model} {show_size(holding.size)}" for holding in holdings[:NAMED]]
    return " and ".join(names) + (f" and {len(holdings) - NAMED} more" if len(holdings) > NAMED else "")
