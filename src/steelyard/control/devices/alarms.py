"""What a person should know of the memory of devices now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...core.memory import Ledger
from ...units import show_seconds, show_size
from ..views import Alarm
from .holder import with_nothing_running
from .holders import Holders
from .sizing import Sizing
from .watched import FRESH, Watched

RAN_OUT = 600.0  # seconds for which it is worth an alarm

Trouble = tuple[str, str]  # its stable code, and whom it is about


class Alarms:
    """Those in force, and since when."""

    def __init__(self) -> None:
        self._since: dict[Trouble, float] = {}
        self._what: dict[Trouble, str] = {}

    def see(self, troubles: Mapping[Trouble, str], now: float) -> None:
        self._what = dict(troubles)
        self._since = {trouble: self._since.get(trouble, now) for trouble in troubles}

    def in_force(self, now: float) -> list[Alarm]:
        return [
            Alarm(code=trouble[0], what=what, age=max(0.0, now - self._since[trouble]), about=trouble[1])
            for trouble, what in self._what.items()
        ]


def troubles(
    devices: Iterable[Watched], ledger: Ledger, holders: Holders, sizings: Mapping[str, Sizing], now: float
) -> dict[Trouble, str]:
    found: dict[Trouble, str] = {}
    for watched in devices:
        found.update(_of_device(watched, ledger, now))
        found.update(_unmeasured(watched, holders, sizings))
    return found


def _of_device(watched: Watched, ledger: Ledger, now: float) -> Iterator[tuple[Trouble, str]]:
    name = watched.name
    if watched.problem:
        yield ("memory_meter", name), f"{name}: {watched.problem}"
    if not watched.capacity:
        what = "how much memory it has is not known, so nothing is counted and requests are let through; "
        yield ("memory_unknown", name), f"{name}: {what}set devices.{name}.memory if it cannot be measured"
    elif (over := _over(watched, ledger)) > 0:
        yield ("memory_over", name), _too_much(watched, over)
    if watched.settings.memory and watched.measured and watched.measured < watched.settings.memory:
        has, said = show_size(watched.measured), show_size(watched.settings.memory)
        yield ("memory_configured", name), f"{name}: it has {has}, not {said} as devices.{name}.memory says"
    if now - watched.last_ran_out <= RAN_OUT:
        ago = show_seconds(now - watched.last_ran_out)
        yield (
            ("memory_ran_out", name),
            f"{name}: requests ran out of memory, {watched.ran_out} in all, the last {ago} ago",
        )


def is_over(watched: Watched, ledger: Ledger, now: float) -> bool:
    """Is more in use than may be given out? As it was measured just now, or else as it is in the book."""
    if not watched.capacity:
        return False
    if watched.used is not None and now - watched.looked <= FRESH:
        return watched.used - watched.beside > watched.device.budget
    return _over(watched, ledger) > 0


def _over(watched: Watched, ledger: Ledger) -> int:
    """What models hold and others use, more than may be given out."""
    device, cells = watched.device, ledger.cells
    models = sum(with_nothing_running(server, cells) for server in device.servers.values())
    return models + cells.other(device.index) - device.budget


def _too_much(watched: Watched, over: int) -> str:
    device, other = watched.device, watched.other
    models = f"its models hold {show_size(device.budget + over - other)}"
    others = f" and others use {show_size(other)}" if other else ""
    budget = f"{show_size(device.budget)} may be given out ({show_size(device.capacity)} less {device.headroom:.0%})"
    return f"{watched.name}: {models}{others}, but only {budget}: no request has room there"


def _unmeasured(watched: Watched, holders: Holders, sizings: Mapping[str, Sizing]) -> Iterator[tuple[Trouble, str]]:
    """A model that is alone on its device does no harm to another."""
    models = {holder.model for holder in holders.on(watched.device)}
    for model in sorted(models) if len(models) > 1 else ():
        if sizings[model].unmeasured:
            yield (
                ("memory_unmeasured", f"{model} on {watched.name}"),
                f"{model}: its answers do not say what a request needs of {watched.name}, so its requests count as "
                f"nothing there: use steelyard.replica in its server, or set models.{model}.memory.request",
            )
