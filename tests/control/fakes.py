"""A fleet with workers inside the test: each has a real balancer and the gateway's own ways, and carries no request.

Messages travel as they do in life, as bytes; a worker that is made later is greeted as the supervisor does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from math import ceil
from random import Random
from time import monotonic
from typing import Any

import pytest

from steelyard.config import Config, ReplicaConfig, parse_config
from steelyard.control.fleet import health, members
from steelyard.control.fleet.fleet import Fleet
from steelyard.control.fleet.registry import ReplicaKey
from steelyard.control.fleet.worker_sync import Workers
from steelyard.control.health.probe import ProbeTarget
from steelyard.control.observability.views import ProbeView
from steelyard.control.supervisor.controllers import Controllers
from steelyard.core.balancer import Balancer
from steelyard.core.replica import Event
from steelyard.gateway.proxy.proxy import Proxy
from steelyard.gateway.worker.fleet import WorkerFleet as Ways
from steelyard.gateway.worker.fleet_updates import apply_load_readings, apply_replica_events
from steelyard.link.messages import (
    Applied,
    Apply,
    FrameDecoder,
    LoadReadings,
    MemberUpdate,
    ReplicaEvents,
    ReplicaReport,
    ToWorker,
    WorkerReport,
    encode_frame,
)
from steelyard.link.shared_ledger import SharedLedger

from .driving import run

A, B = ("m", "a"), ("m", "b")
HERE, THERE = "http://127.0.0.1:9", "http://127.0.0.1:10"
ONE = "models: {m: {replicas: [{id: a, url: 'http://127.0.0.1:9'}]}}"
MOVED = ONE.replace(":9", ":10")
TWO = "models: {m: {replicas: [{id: a, url: 'http://127.0.0.1:9'}, {id: b, url: 'http://127.0.0.1:10'}]}}"
UNPROBED = "models: {m: {health: {enabled: false}, replicas: [{id: a, url: 'http://127.0.0.1:9'}]}}"
EMPTY = "models: {m: {}}"


def made(text: str) -> Config:
    return parse_config("admin: {listen: ''}\n" + text)


def replica(id: str = "a", url: str = HERE, weight: float = 1.0) -> ReplicaConfig:
    return ReplicaConfig(url=url, id=id, weight=weight)


def in_flight(*keys: ReplicaKey, overdue: bool = False) -> WorkerReport:
    """A worker has something there."""
    runs_for = 60.0 if overdue else 0.0
    seen = (
        ReplicaReport(model, id, in_flight=1, dispatched=1, state="ready", runs_for=runs_for, stalls_after=1.0)
        for model, id in keys
    )
    return WorkerReport(0, (), tuple(seen))


class InProcessWorker:
    """A worker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.proxy: Proxy | None = None
        self.ways: Ways | None = None

    def hear(self, message: ToWorker) -> Applied | None:
        match message:
            case Apply():
                return self._apply(message)
            case MemberUpdate() if self.ways is not None:
                self.ways.update_members(message, monotonic())
            case ReplicaEvents() if self.proxy is not None:
                apply_replica_events(self.proxy.dispatcher, message.events, monotonic())
            case LoadReadings() if self.proxy is not None:
                apply_load_readings(self.proxy.dispatcher, message.loads, monotonic())
        return None

    def _apply(self, message: Apply) -> Applied:
        if "refused" in message.config.models:
            return Applied(message.number, "no such certificate")
        if self.proxy is None:
            self.proxy = Proxy(self._loop, Balancer(Random(1)), message.config)
            self.ways = Ways(self.proxy)
        assert self.ways is not None
        self.ways.apply(message.config, message.columns, monotonic())
        return Applied(message.number)

    def states(self) -> dict[ReplicaKey, str]:
        assert self.proxy is not None
        pools = self.proxy.balancer
        return {(m, id): r.state.value for m in pools.models for id, r in pools.pool(m).replicas.items()}

    def urls(self) -> dict[ReplicaKey, str]:
        assert self.proxy is not None
        pools = self.proxy.balancer
        return {(m, id): r.context.config.url for m in pools.models for id, r in pools.pool(m).replicas.items()}


class InProcessWorkerPool:
    """What the fleet needs of a pool of workers. `heard` is all that was said, the latest last."""

    def __init__(self, fleet: Fleet, size: int = 1) -> None:
        self.fleet = fleet
        self.heard: list[ToWorker] = []
        self.worker_reports: list[WorkerReport] = []
        self.report_requests = 0
        self.slow = False  # answers to a configuration wait for `answer`
        self._loop = asyncio.get_running_loop()
        self.workers: dict[int, InProcessWorker] = {}
        self._answers: list[tuple[int, Applied]] = []
        for index in range(size):
            self.hire(index)

    def hire(self, index: int) -> InProcessWorker:
        """As `WorkerSlot` and `Supervisor` greet a new one."""
        worker = self.workers[index] = InProcessWorker(self._loop)
        for message in [*self.fleet.members.active_config.initial_state(), *self.fleet.initial_state()]:
            self._send(index, message)
        return worker

    def broadcast(self, message: ToWorker) -> list[str]:
        self.heard.append(message)
        for index in self.workers:
            self._send(index, message)
        return [f"worker {index}" for index in self.workers]

    def _send(self, index: int, message: ToWorker) -> None:
        (as_heard,) = FrameDecoder(ToWorker).feed(encode_frame(message))
        answer = self.workers[index].hear(as_heard)
        if answer is not None:
            self._answers.append((index, answer))
            if not self.slow:
                self._loop.call_soon(self.answer)

    def answer(self) -> None:
        answers, self._answers = self._answers, []
        for index, answer in answers:
            self.fleet.members.active_config.acknowledged(f"worker {index}", answer)

    def reports(self) -> list[WorkerReport]:
        return self.worker_reports

    async def request_reports(self, seconds: float = 0.0) -> bool:
        self.report_requests += 1
        return True

    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.heard]


class Clock:
    """A clock that nobody but the test puts forward: nothing runs out on a slow machine."""

    def __init__(self) -> None:
        self._begin = ceil(asyncio.get_running_loop().time())
        self.ahead = 0.0

    def time(self) -> float:
        return self._begin + self.ahead


class ScriptedProber:
    """Sees what the test says. It reports only on the replicas that it follows, as the real one does."""

    def __init__(self, saw: Any, progress: Any) -> None:
        self.saw, self.progress = saw, progress
        self.targets: dict[ReplicaKey, ProbeTarget] = {}
        self.result_counts: dict[tuple[str, str], int] = {}
        self.anew: list[ReplicaKey] = []
        self.hurried: list[ReplicaKey] = []
        self._ready: set[tuple[ReplicaKey, str]] = set()  # who is so, or was when it was not asked any more, and where

    def set_targets(self, targets: Mapping[ReplicaKey, ProbeTarget]) -> None:
        for key, target in targets.items():
            if not target.health.enabled:
                self._ready.add((key, target.settings.url))  # it counts as such
        self.targets = {key: target for key, target in targets.items() if target.health.enabled}

    def sees(self, key: ReplicaKey, event: Event = Event.LOADED, reason: str = "seen") -> None:
        if key in self.targets:
            seen = (key, self.targets[key].settings.url)
            if event is Event.LOADED:
                self._ready.add(seen)
            else:
                self._ready.discard(seen)
            self.saw(key, event, reason)

    def was_ready(self, key: ReplicaKey, url: str) -> bool:
        """When it was last looked at."""
        return (key, url) in self._ready

    def model_unloaded(self, key: ReplicaKey) -> None:
        """It will be asked for again when it is loaded."""

    def reprobe(self, key: ReplicaKey) -> None:
        self.anew.append(key)

    def probe_now(self, key: ReplicaKey) -> None:
        self.hurried.append(key)

    def view(self, key: ReplicaKey) -> ProbeView | None:
        return None

    async def close(self) -> None:
        pass


class Played:
    """A fleet that runs, its workers and its probes."""

    def __init__(
        self,
        fleet: Fleet,
        controllers: Controllers,
        worker_pool: InProcessWorkerPool,
        prober: ScriptedProber,
        clock: Clock,
    ) -> None:
        self.fleet, self.controllers, self.worker_pool = fleet, controllers, worker_pool
        self.prober, self.clock = prober, clock

    def pass_time(self, seconds: float) -> None:
        """As the supervisor does it: a look twice a second."""
        for _ in range(int(2 * seconds)):
            self.clock.ahead += 0.5
            self.fleet.tick()

    def state(self, key: ReplicaKey) -> str:
        return self.fleet.health.statuses[key].state.value

    def everywhere(self, key: ReplicaKey) -> set[str]:
        """Its state in the eyes of all workers."""
        return {worker.states().get(key, "unknown") for worker in self.worker_pool.workers.values()}

    async def settle(self) -> None:
        """Until nothing is left that was to be done soon."""
        for _ in range(8):
            await asyncio.sleep(0)


@asynccontextmanager
async def played(config: Config, workers: int = 1) -> AsyncIterator[Played]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "Prober", ScriptedProber)
        patch.setattr(members, "MEMBERSHIP_BATCH_SECONDS", 0.0)
        clock = Clock()
        fleet = Fleet(config, clock.time)
        worker_pool = InProcessWorkerPool(fleet, 0)
        try:
            async with running(fleet, worker_pool) as controllers:
                for index in range(workers):
                    worker_pool.hire(index)
                await asyncio.sleep(0)
                prober: Any = fleet.health.prober
                yield Played(fleet, controllers, worker_pool, prober, clock)
        finally:
            for worker in worker_pool.workers.values():
                if worker.proxy is not None:
                    worker.proxy.close()


@asynccontextmanager
async def running(fleet: Fleet, workers: Workers) -> AsyncIterator[Controllers]:
    """With all its observers, as in a supervisor."""
    ledger = SharedLedger.create(fleet.members.active_config.columns.columns)
    controllers = Controllers(fleet, ledger)
    await controllers.start(workers)
    try:
        yield controllers
    finally:
        await fleet.stop()
        ledger.close()
        await controllers.replicas.stop_all()
        await controllers.replicas.close()


Scene = Callable[[Played], Awaitable[None]]


def play(config: str, scene: Scene, workers: int = 2) -> None:
    async def work() -> None:
        async with played(made(config), workers) as stage:
            await scene(stage)

    run(work())


def acted(config: str, workers: int = 2) -> Callable[[Scene], Callable[[], None]]:
    """The scene as a test, with a fleet by this configuration."""

    def as_test(scene: Scene) -> Callable[[], None]:
        def test() -> None:
            play(config, scene, workers)

        test.__doc__ = scene.__doc__
        return test

    return as_test
