"""A stage for conversations: a proxy with its fleet, between clients and replicas that the test plays.

Nothing here is real but the gateway's own code: the loop has no sockets, and its clock moves when the test says so.
Each test reads like a conversation: who says what, and what the other end hears.
"""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random
from typing import Any

from steelyard.config import Config, parse_config
from steelyard.core.balancer import Balancer
from steelyard.core.memory.ledger import MemoryLedger
from steelyard.core.replica import Event, Replica, State
from steelyard.gateway.proxy.client_connection import ClientConnection
from steelyard.gateway.proxy.proxy import Proxy
from steelyard.gateway.telemetry.model_stats import ModelStats
from steelyard.gateway.worker.device_memory import TrackedDeviceMemory
from steelyard.gateway.worker.fleet import WorkerFleet
from steelyard.link.messages import FromWorker

from .loop import Dial, Loop, Wire
from .transports import FakeTransport


class Stage:
    def __init__(self, config: str | Config, seed: int = 1, balancer: Balancer | None = None) -> None:
        self.loop = Loop()
        self.config = parse_config(config) if isinstance(config, str) else config
        started = any(model.runtime is not None for model in self.config.models.values())
        ledger = MemoryLedger() if self.config.devices or started else None
        self.balancer = balancer or Balancer(Random(seed), ledger)
        self.proxy = Proxy(self.loop, self.balancer, self.config, clock=self.loop.time)
        self.said: list[FromWorker] = []  # of memory, to the supervisor
        if ledger is not None:
            self.proxy.dispatcher.memory = TrackedDeviceMemory(self.proxy.dispatcher, ledger, self.said.append)
        self.fleet = WorkerFleet(self.proxy)
        self._apply()
        self.probe()
        self.clients: list[Wire] = []
        self.replicas: set[Replica] = set()  # all there ever were

    def close(self) -> None:
        for wire in (*self.clients, *self.loop.wires):
            wire.transport.abort()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.settle()
        self.loop.close()

    def probe(self) -> None:
        """What the supervisor does in life: it finds whoever is new ready."""
        for model in self.balancer.models:
            for replica in list(self.balancer.pool(model).replicas.values()):
                if replica.state is State.STARTING:
                    loaded = self.balancer.report(replica.id, Event.LOADED, model, now=self.loop.now)
                    self.proxy.dispatcher.execute(loaded, self.loop.now)

    # ------------------------------------------------------------------ who is there

    def client(self, peer: Any = ("192.0.2.7", 4242), tls: bool = False) -> Wire:
        protocol = ClientConnection(self.proxy)
        transport = FakeTransport(self.loop, protocol, peer, tls)
        protocol.connection_made(transport)
        self.loop.settle()
        wire = Wire(transport)
        self.clients.append(wire)
        return wire

    def dial(self, place: str = "") -> Dial:
        """The connection the gateway waits for."""
        self.loop.settle()
        waiting = [dial for dial in self.loop.dials if dial.waiting and dial.place.endswith(place)]
        assert waiting, f"no connection to {place or 'any replica'} is wanted"
        return waiting[0]

    def accept(self, place: str = "") -> Wire:
        return self.dial(place).accept()

    def replica(self, place: str = "") -> Wire:
        """The replica's end of the one connection that has a request on it; it is accepted if need be."""
        while self.dialling:
            self.accept()
        (wire,) = [w for w in self.loop.wires if w.transport.protocol in self.proxy.active and w.place.endswith(place)]
        return wire

    @property
    def dialling(self) -> list[str]:
        self.loop.settle()
        return [dial.place for dial in self.loop.dials if dial.waiting]

    def reload(self, config: str | Config) -> None:
        self.remember()
        self.config = parse_config(config) if isinstance(config, str) else config
        self._apply()
        self.probe()
        self.loop.settle()

    def _apply(self) -> None:
        columns: dict[str, dict[str, int]] = {}
        if self.config.devices:
            number = count()
            columns = {name: {r.name: next(number) for r in m.replicas} for name, m in self.config.models.items()}
        devices = {name: index for index, name in enumerate(self.config.devices)}
        self.fleet.apply(self.config, columns, self.loop.now, devices)

    def pass_time(self, seconds: float) -> None:
        self.loop.pass_time(seconds)

    # ------------------------------------------------------------------ what must hold

    def remember(self) -> None:
        for model in self.balancer.models:
            self.replicas.update(self.balancer.pool(model).replicas.values())

    def account(self, model: str = "*") -> ModelStats:
        return self.proxy.recorder.stats[model]

    def check_idle(self, *, counted: int | None = None) -> None:
        """Nobody asks for anything: nothing may be left of anybody."""
        self.loop.settle()
        self.remember()
        assert not self.loop.problems, self.loop.problems
        assert self.proxy.held == 0
        assert not self.proxy.active
        for client in self.proxy.clients:
            assert client.exchange is None
            assert client.tunnel is None
        assert [r for r in self.replicas if r.in_flight or r.running_attempts] == []
        for model in self.balancer.models:
            pool = self.balancer.pool(model)
            assert pool.active == 0
            assert len(pool.queue) == 0
            assert not pool.preempted
        for endpoint in self.proxy.connection_pools.values():
            assert not [c for c in endpoint.idle if c.exchange is not None or c.transport.paused]
        for device in self.balancer.ledger.devices.values():
            assert self.balancer.ledger.cells.count(device.index) == 0
        if counted is not None:
            assert self.counted() == counted

    def counted(self) -> int:
        accounts = [*self.proxy.recorder.stats.values(), self.proxy.recorder.unrouted]
        return sum(sum(account.outcomes().values()) for account in accounts)
