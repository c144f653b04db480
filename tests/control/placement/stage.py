"""A placer with real servers in the loop of the test, and a fleet and a ledger that record their calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from steelyard.config import Config, parse_config
from steelyard.control.fleet.health import ReplicaStatus
from steelyard.control.observability.views import Alarm
from steelyard.control.placement.controller import PlacementController
from steelyard.control.placement.model_demand import ReportedDemand
from steelyard.core.placement.planner import LoadDecision, ModelDemand, PlacementPlanner, ServerState
from steelyard.core.replica import Event, State
from steelyard.link.messages import ReplicaDemand

from ..driving import run, until
from ..fake_fleet import FakeFleet, in_force
from ..health.servers import Asked, Server

Key = tuple[str, str]
MODEL_BYTES = 10  # of each model
HELD = ("LOADING", "READY", "UNLOADING")  # states in which a model holds its bytes


class Shelf(Server):
    """A server with the repository extension. `models` has the state of each, in the words of Triton."""

    def __init__(self, *models: str, ready: Sequence[str] = ()) -> None:
        super().__init__()
        self.models = {model: "READY" if model in ready else "UNAVAILABLE" for model in models}
        self.loads: list[str] = []
        self.unloads: list[str] = []
        self.refuse = ""  # what it answers to every load and unload
        self.going_on = asyncio.Event()  # cleared: loads and unloads do not end
        self.going_on.set()
        self.lingers = False  # an unload is answered at once, and ends only when it goes on
        self.answers["/v2/repository/index"] = self.index
        for model in models:
            self.answers[f"/v2/repository/models/{model}/load"] = lambda asked, m=model: self._load(m)
            self.answers[f"/v2/repository/models/{model}/unload"] = lambda asked, m=model: self._unload(m)
        self.watch: Callable[[str, str], None] = lambda what, model: None
        self._lingering: list[asyncio.Future[None]] = []
        self._life = 0

    def index(self, asked: Asked) -> bytes:
        lines = [{"name": model, "version": "1", "state": state} for model, state in self.models.items()]
        return self.reply(200, json.dumps(lines).encode())

    async def _load(self, model: str) -> bytes:
        self.loads.append(model)
        self.watch("load", model)
        if self.refuse:
            return self.reply(400, json.dumps({"error": self.refuse}).encode())
        await self._becomes(model, "LOADING", "READY")
        return self.reply(200)

    async def _unload(self, model: str) -> bytes:
        self.unloads.append(model)
        self.watch("unload", model)
        if self.refuse:
            return self.reply(400, json.dumps({"error": self.refuse}).encode())
        going = asyncio.ensure_future(self._becomes(model, "UNLOADING", "UNAVAILABLE"))
        if self.lingers:
            self._lingering.append(going)
        else:
            await going
        return self.reply(200)

    async def _becomes(self, model: str, now: str, later: str) -> None:
        """ConnectionError: the process has died meanwhile."""
        life = self._life
        self.models[model] = now
        await self.going_on.wait()
        if life != self._life:
            raise ConnectionResetError
        self.models[model] = later

    async def crash(self) -> None:
        """Whatever it had is gone."""
        await self.stop()
        self.models = dict.fromkeys(self.models, "UNAVAILABLE")
        self._life += 1
        for task in self._lingering:
            task.cancel()
        await asyncio.gather(*self._lingering, return_exceptions=True)


class FakeLedger:
    """Room on devices, and what was reserved."""

    def __init__(self, capacity: int = 3 * MODEL_BYTES) -> None:
        self.capacity = capacity
        self.sizes: dict[str, int] = {}
        self.reserved: dict[Key, int] = {}
        self.measured: list[Key] = []
        self.weights: dict[Key, int] = {}  # as servers said
        self.most = 0
        self.in_use: int | None = None  # as measured
        self.kept: dict[str, int] = {}  # by replica: what its server holds for later

    def free_bytes(self) -> Mapping[str, int]:
        return {"gpu": self.capacity - self.used}

    def budgets(self) -> Mapping[str, int]:
        return {"gpu": self.capacity}

    def free_bytes_at(self, key: Key) -> int:
        return self.capacity - self.used + self.kept.get(key[1], 0)

    @property
    def used(self) -> int:
        return sum(self.reserved.values())

    def footprint(self, model: str) -> int:
        return self.sizes.get(model, MODEL_BYTES)

    def reserve(self, key: Key, amount: int) -> bool:
        if self.used - self.reserved.get(key, 0) + amount > self.capacity + self.kept.get(key[1], 0):
            return False
        self.reserved[key] = amount
        self.most = max(self.most, self.used)
        return True

    def release(self, key: Key) -> None:
        assert key in self.reserved, f"{key} is given back, and was not taken"
        del self.reserved[key]

    def resident(self, key: Key) -> None:
        self.reserved.setdefault(key, self.footprint(key[0]))
        self.measured.append(key)

    def is_over(self, key: Key, now: float) -> bool:
        return self.used > self.capacity if self.in_use is None else self.in_use > self.capacity

    def footprint_measured(self, key: Key, amount: int, now: float) -> None:
        assert key in self.reserved
        self.weights[key] = amount


class Script:
    """In place of `Placement` (which may be compiled): decides what the test wants, and keeps what it was asked."""

    def __init__(self) -> None:
        self.loads: list[LoadDecision] = []
        self.servers: dict[str, ServerState] = {}
        self.demands: Mapping[str, ModelDemand] = {}
        self.asked = 0

    def decide(
        self, servers: Sequence[ServerState], rooms: Mapping[str, int], demands: Mapping[str, ModelDemand], now: float
    ) -> list[LoadDecision]:
        self.asked += 1
        self.servers, self.demands = {server.server: server for server in servers}, demands
        return self.loads


class Stage:
    """The fleet, as far as the placer sees it."""

    def __init__(
        self, shelves: Mapping[str, Shelf], placement: PlacementPlanner | None = None, ledger: FakeLedger | None = None
    ) -> None:
        self.shelves = shelves
        self.ledger = ledger or FakeLedger()
        self.devices: dict[str, str] = {}  # of replicas that are not on `gpu`
        self.script = Script()
        self.demands: dict[str, ReportedDemand] = {}
        self.drains: Callable[[Key], Awaitable[bool]] = self._drains
        self.unknown: set[Key] = set()  # whose probes do not see that they are ready
        self.fleet = FakeFleet()
        self.fleet.transition = self._move
        self.fleet.reprobe = self._see_anew
        self.fleet.wait_drained = lambda key: self.drains(key)
        self.statuses, self.anew, self.sent = self.fleet.statuses, self.fleet.reprobed, self.fleet.sent
        self.running: dict[Key, int] = {}
        self.fleet.in_flight = lambda: self.running
        self.events: list[tuple[Key, Event]] = []
        self.placer = PlacementController(
            self.fleet, self.ledger, lambda now: self.demands, placement=placement or self.script
        )

    @property
    def notes(self) -> list[str]:
        return [f"{note.model}/{note.replica}: {note.what}" for note in self.fleet.notes]

    async def _drains(self, key: Key) -> bool:
        return not self.running.get(key)

    def _move(self, key: Key, event: Event, reason: str) -> None:
        self.events.append((key, event))
        status = self.statuses.setdefault(key, ReplicaStatus(0.0))
        if status.apply(event, reason, 0.0):
            self.placer.state_changed(key, status.state, self.fleet.now())

    def _see_anew(self, key: Key) -> None:
        self.anew.append(key)
        if key not in self.unknown:
            self._move(key, Event.LOADED, "ready")

    def wanted(self, message: ReplicaDemand) -> None:
        """As a worker."""
        self.placer.model_requested(message, self.fleet.now())

    def alarms(self) -> list[Alarm]:
        return self.placer.alarms(self.fleet.now())

    def members(self, config: Config) -> None:
        self.placer.members_changed(in_force(config), self.fleet.now())

    def move(self, key: Key, event: Event) -> None:
        """As an operator or a probe."""
        self._move(key, event, "so it is")

    def state(self, model: str, replica: str) -> str:
        return self.statuses[model, replica].state.value if (model, replica) in self.statuses else ""

    def load(self, model: str, replica: str, *evict: tuple[str, str]) -> None:
        """From now on this is decided, again and again."""
        gone = tuple((self.server(server), victim) for server, victim in evict)
        self.script.loads = [LoadDecision(model, self.server(replica), gone, "it is wanted")]

    def server(self, replica: str) -> str:
        return str(self.shelves[replica].address)

    def follow(self, *models: str, shelves: Sequence[str] = (), **settings: Any) -> Config:
        made = self.config(*models, shelves=shelves, **settings)
        for key in [key for key in self.statuses if not _has(made, key)]:
            del self.statuses[key]
        self.members(made)
        return made

    def config(self, *models: str, shelves: Sequence[str] = (), **settings: Any) -> Config:
        named = [
            {"id": name, "url": self.shelves[name].url, "device": self.devices.get(name, "gpu")}
            for name in shelves or self.shelves
        ]
        return parse_config(
            json.dumps(
                {
                    "models": {
                        model: {
                            "dialect": "triton",
                            "placement": {"load_time": 2, **settings.get(model, {})},
                            "replicas": named,
                        }
                        for model in models
                    },
                    "devices": {name: {"memory": "1GiB"} for name in ("gpu", *self.devices.values())},
                }
            )
        )

    async def until(self, true: Callable[[], Any]) -> None:
        """The supervisor ticks meanwhile."""

        def ticked() -> Any:
            self.placer.tick(asyncio.get_running_loop().time())
            return true()

        await until(ticked)

    async def known(self) -> None:
        """Until the placer knows what is where, and has thought about it."""
        await self.until(lambda: all(host.known for host in self.placer.views().hosts))
        before = self.script.asked
        await self.until(lambda: self.script.asked > before)

    def failures(self) -> dict[Key, str]:
        return {(view.model, view.replica): view.reason for view in self.placer.views().failures}


def _has(config: Config, key: Key) -> bool:
    model = config.models.get(key[0])
    return model is not None and any(replica.name == key[1] for replica in model.replicas)


Scene = Callable[[Stage], Awaitable[None]]


@asynccontextmanager
async def staged(
    placement: PlacementPlanner | None = None, ledger: FakeLedger | None = None, **shelves: Shelf
) -> AsyncIterator[Stage]:
    for shelf in shelves.values():
        await shelf.start()
    stage = Stage(shelves, placement, ledger)
    try:
        yield stage
    finally:
        await stage.placer.stopped()
        assert not stage.placer.views().jobs
        for shelf in shelves.values():
            shelf.going_on.set()
            await shelf.crash()


def acted(**shelves: Callable[[], Shelf]) -> Callable[[Scene], Callable[[], None]]:
    """The scene as a test, with these servers: what makes them, because they need a loop."""

    def as_test(scene: Scene) -> Callable[[], None]:
        async def work() -> None:
            async with staged(**{name: make() for name, make in shelves.items()}) as stage:
                await scene(stage)

        def test() -> None:
            run(work())

        test.__doc__ = scene.__doc__
        return test

    return as_test


READY, UNLOADED, LOADING = State.READY.value, State.UNLOADED.value, State.LOADING.value
