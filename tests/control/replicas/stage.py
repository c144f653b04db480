"""A controller with a runtime, a fleet and a clock that do what the test says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from steelyard.config import Config, parse_config
from steelyard.control.observability.views import Alarm
from steelyard.control.replicas.controller import ReplicaController
from steelyard.core.replica import Event, State
from steelyard.link.messages import StartProgress
from steelyard.runtimes import Runtime

from ..fake_fleet import FakeFleet
from .fake_runtime import FakeRuntime

Key = tuple[str, str]
GIB = 1 << 30


def config(runtime: str = "", *, models: Iterable[str] = ("m",), more: str = "", autoscale: str = "") -> Config:
    """Models with a runtime; `more`: lines at the end."""
    scaled = f", autoscale: {{{autoscale}}}" if autoscale else ""
    lines = "".join(f"  {m}: {{runtime: {{command: 'serve {{port}}', {runtime}}}{scaled}}}\n" for m in models)
    return parse_config(f"models:\n{lines}{more}")


class FakeRoom:
    def __init__(self) -> None:
        self.free: dict[str, int] = {}
        self.sizes: dict[str, int] = {}

    def free_bytes(self) -> Mapping[str, int]:
        return dict(self.free)

    def footprint(self, model: str) -> int:
        return self.sizes.get(model, 0)


class Stage:
    """The fleet: what the controller tells it, and what it tells the controller."""

    def __init__(self, runtime: Runtime | None = None) -> None:
        self.now = 100.0
        self.room = FakeRoom()
        self.runtime = FakeRuntime()
        self.busy: set[Key] = set()  # these do not drain
        self.drains: dict[str, float] = {}  # replica → seconds that what runs there has
        self.fleet = FakeFleet(lambda: self.now)
        self.fleet.wait_drained = self._drained
        self.managed, self.statuses, self.moves = self.fleet.managed, self.fleet.statuses, self.fleet.transitions
        self.sent, self.worth, self.move = self.fleet.sent, self.fleet.loads, self.fleet.transition
        self.controller = ReplicaController(self.fleet, self.room, runtimes={"process": runtime or self.runtime})
        self.fleet.observers.append(self.controller)

    @property
    def notes(self) -> list[tuple[int, str]]:
        return [(note.level, note.what) for note in self.fleet.notes]

    async def _drained(self, key: Key, seconds: float) -> bool:
        self.drains[key[1]] = seconds
        while key in self.busy:
            await asyncio.sleep(0)
        return True

    # ------------------------------------------------------------------ what the test does

    async def turn(self, times: int = 12) -> None:
        """The loop goes on until nothing is left to do at this time."""
        for _ in range(times):
            await asyncio.sleep(0)

    async def later(self, seconds: float) -> None:
        self.now += seconds
        self.controller.tick(self.now)
        await self.turn()

    def reconfigure(self, made: Config) -> None:
        self.controller.config_changed(made, self.now)

    def alarms(self) -> list[Alarm]:
        return self.controller.alarms(self.now)

    async def want(self, replicas: int, model: str = "m") -> None:
        self.controller.scale(model, replicas, "the test wants it")
        await self.turn()

    async def ready(self, *ids: str, model: str = "m") -> None:
        for id in ids:
            self.move((model, id), Event.LOADED, "seen")
        await self.turn()

    async def crash(self, id: str, model: str = "m", how: str = "exit code 1") -> None:
        self.runtime.end((model, id), how)
        await self.turn()

    def ids(self, model: str = "m") -> list[str]:
        """Of the members."""
        return [replica.name for replica in self.managed.get(model, ())]

    def phases(self, model: str = "m") -> dict[str, str]:
        return {view.replica: view.phase for view in self.controller.summary(model).instances}

    def state(self, id: str, model: str = "m") -> State:
        return self.statuses[(model, id)].state

    def coming(self) -> list[float]:
        return [message.seconds for message in self.sent if isinstance(message, StartProgress)]

    def words(self, level: int = logging.WARNING) -> str:
        return "\n".join(what for at, what in self.notes if at >= level)


@asynccontextmanager
async def staged(made: Config | None = None, **changes: Any) -> AsyncIterator[Stage]:
    stage = Stage()
    for name, value in changes.items():
        setattr(stage.runtime, name, value)
    await stage.controller.begin(made or config())
    try:
        yield stage
    finally:
        await stage.controller.close()
