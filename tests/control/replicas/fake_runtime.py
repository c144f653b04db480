"""A runtime that does what the test says, when it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from steelyard.runtimes import Instance, InstancePhase, ReplicaSpec, ReplicaStartError

Key = tuple[str, str]


class FakeRuntime:
    def __init__(self) -> None:
        self.orders: list[ReplicaSpec] = []
        self.running: dict[Key, Instance] = {}
        self.left: list[Instance] = []  # by a supervisor before
        self.stops: list[Key] = []
        self.refuse: ReplicaStartError | Exception | None = None  # each start ends so
        self.fail_stops = 0  # so many
        self.fail_list: Exception | None = None
        self.slow_starts = False  # they wait for `answer`
        self.slow_stops = False  # they wait for `stopped`
        self.no_url = False
        self.words: tuple[str, ...] = ()
        self.closed = False
        self.answer = asyncio.Event()
        self.stopped = asyncio.Event()
        self._callbacks: list[Callable[[Instance], None]] = []

    async def start(self, spec: ReplicaSpec) -> Instance:
        self.orders.append(spec)
        if self.slow_starts:
            await self.answer.wait()
        if self.refuse is not None:
            raise self.refuse
        key = (spec.model, spec.id)
        assert key not in self.running
        url = "" if self.no_url else f"http://127.0.0.1:{20000 + len(self.orders)}"
        made_of = spec.settings.fingerprint()
        self.running[key] = Instance(*key, url, spec.device, made_of, InstancePhase.RUNNING, 0.0, location="pid 1")
        return self.running[key]

    async def stop(self, model: str, id: str, *, timeout: float) -> None:
        self.stops.append((model, id))
        if self.slow_stops:
            await self.stopped.wait()
        if self.fail_stops:
            self.fail_stops -= 1
            raise OSError("no answer")
        if (model, id) in self.running:
            self.end((model, id), "signal SIGTERM")

    async def list(self, predecessor_pid: int = 0) -> tuple[Instance, ...]:
        if self.fail_list is not None:
            raise self.fail_list
        self.running.update({(i.model, i.id): i for i in self.left})
        return tuple(self.left)

    def watch(self, callback: Callable[[Instance], None]) -> None:
        self._callbacks.append(callback)

    def release(self) -> None:
        pass

    def log_tail(self, model: str, id: str, lines: int = 20) -> tuple[str, ...]:
        return self.words[-lines:]

    async def close(self) -> None:
        self.closed = True

    # ------------------------------------------------------------------ what the test does

    def end(self, key: Key, how: str = "exit code 1") -> None:
        """By itself, or by whoever."""
        self._tell(self.running.pop(key)._replace(phase=InstancePhase.ENDED, exit_reason=how))

    def finds_url(self, key: Key, url: str) -> None:
        self.running[key] = self.running[key]._replace(url=url)
        self._tell(self.running[key])

    def _tell(self, instance: Instance) -> None:
        for callback in self._callbacks:
            callback(instance)
