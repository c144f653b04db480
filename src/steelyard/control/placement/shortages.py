"""Models that are requested and fit nowhere: an alarm with numbers, for only an operator can help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...core.placement.planner import LoadDecision, ModelCopy, ModelDemand, ServerState
from ...units import format_size
from ..observability.views import Alarm

ALARM_DELAY_SECONDS = 5.0
MAX_NAMED = 3  # devices, and models on each


class UnplaceableModels:
    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._why: dict[str, str] = {}

    def update(
        self,
        servers: Sequence[ServerState],
        rooms: Mapping[str, int],
        budgets: Mapping[str, int],
        demands: Mapping[str, ModelDemand],
        loads: Iterable[LoadDecision],
        now: float,
    ) -> None:
        there = {holding.model for server in servers for holding in server.copies} | {load.model for load in loads}
        short = {m: d for m, d in demands.items() if (d.waiting or d.pinned) and m not in there}
        self._since = {model: self._since.get(model, now) for model in short}
        self._why = {model: why for model, why in self._why.items() if model in short}
        busy = {server.device for server in servers if server.busy}
        for model, demand in short.items():
            able = {s.device: None for s in servers if model in s.loadable_models and s.device in rooms}
            if able and not busy & able.keys():  # otherwise a job runs, or loads fail there for another reason
                places = (_describe_device(d, servers, rooms[d], budgets.get(d, 0)) for d in list(able)[:MAX_NAMED])
                needs = f"{model} has no place: it needs {format_size(demand.size)}"
                self._why[model] = "; ".join([needs, *places])

    def alarms(self, now: float) -> Iterator[Alarm]:
        for model, why in self._why.items():
            if now - self._since[model] >= ALARM_DELAY_SECONDS:
                yield Alarm(code="insufficient_memory", message=why, age=now - self._since[model], model=model)


def _describe_device(device: str, servers: Iterable[ServerState], room: int, budget: int) -> str:
    held = [holding for server in servers if server.device == device for holding in server.copies]
    pinned = [holding for holding in held if holding.pinned]
    busy = [holding for holding in held if holding.in_flight and not holding.pinned]
    parts = [f"{device} may give out {format_size(budget)}, {format_size(room)} of it free"]
    parts += [f"{word}: {_describe_holdings(them)}" for word, them in (("pinned", pinned), ("busy", busy)) if them]
    return ", ".join(parts)


def _describe_holdings(holdings: Sequence[ModelCopy]) -> str:
    names = [f"{holding.model} {format_size(holding.size)}" for holding in holdings[:MAX_NAMED]]
    return " and ".join(names) + (f" and {len(holdings) - MAX_NAMED} more" if len(holdings) > MAX_NAMED else "")
