"""Mock replicas with service times, in one process: `python -m benchmarks.mocks.timed_replicas PORT PORT …`.

A mock of a model server's *time*, not of a model: requests are served one after the other, first come first served,
each for its work ÷ the replica's speed by the clock. A request says its work in seconds (`"work": "0.05"` in its JSON).
POST /arena sets speeds, the start of the run and its faults.
"""

from __future__ import annotations

import asyncio
import re
import sys
from functools import partial
from time import monotonic

import msgspec
import uvloop

from steelyard.simulate.scenario.schema import Scenario

from ..load.http_protocol import ServerConnection
from ..load.timer import Timer

WORK_PATTERN = re.compile(rb'"work":\s*"([^"]+)"')
CONTROL_PATH = b"/arena"


class FaultWindow(msgspec.Struct, frozen=True):
    kind: str  # as of a scenario's Fault: slow, errors or crash
    replica: int
    begin: float  # CLOCK_MONOTONIC, as `end`
    end: float
    factor: float


class Plan(msgspec.Struct, frozen=True):
    speeds: tuple[float, ...]
    faults: tuple[FaultWindow, ...] = ()

    @classmethod
    def of(cls, scenario: Scenario, begin: float) -> Plan:
        """A scenario's fleet and faults, for a run that begins at a time of CLOCK_MONOTONIC."""
        speeds = tuple(group.speed for group in scenario.fleet for _ in range(group.count))
        faults = [
            FaultWindow(f.kind, f.replica, begin + f.at, begin + f.at + f.duration, f.factor) for f in scenario.faults
        ]
        return cls(speeds, tuple(faults))


class ServiceTimes:
    """When a request is done that begins at a time: `slow` stretches of time do less."""

    def __init__(self, speed: float, slow: list[tuple[float, float, float]]) -> None:
        self.speed = speed
        self.slow = sorted(slow)  # from, to, factor; they do not overlap

    def finish(self, start: float, work: float) -> float:
        now, left = start, work / self.speed
        for begin, end, factor in self.slow:
            if now < begin:
                if now + left <= begin:
                    return now + left
                left -= begin - now
                now = begin
            if now < end:
                if now + left * factor <= end:
                    return now + left * factor
                left -= (end - now) / factor
                now = end
        return now + left


class Replica:
    def __init__(self, place: int, port: int, timer: Timer) -> None:
        self.place = place
        self.port = port
        self.timer = timer
        self.server: asyncio.Server | None = None
        self.connections: set[Connection] = set()
        self.task: asyncio.Task[None] | None = None
        self.down = False
        self.plan(Plan(()))

    def plan(self, plan: Plan) -> None:
        if self.down:  # the run before was broken off in the middle of a crash
            self.start()
        mine = [fault for fault in plan.faults if fault.replica == self.place]
        speed = plan.speeds[self.place] if self.place < len(plan.speeds) else 1.0
        self.service_times = ServiceTimes(speed, [(t.begin, t.end, t.factor) for t in mine if t.kind == "slow"])
        self.failing = [(t.begin, t.end) for t in mine if t.kind == "errors"]
        self.free = 0.0  # when all that has come so far is done
        for crash in (t for t in mine if t.kind == "crash"):
            self.timer.at(crash.begin, self.crash)
            self.timer.at(crash.end, self.start)

    def serve(self, connection: Connection, work: float) -> None:
        """First come, first served: when it will be done is known when it comes, so no delay of ours adds up."""
        now = monotonic()
        if any(begin <= now < end for begin, end in self.failing):
            connection.reply(b'{"error": "out of order"}', "500 Internal Server Error")
            return
        self.free = self.service_times.finish(max(now, self.free), work)
        self.timer.at(self.free, partial(self.answer, connection, self.free))

    def answer(self, connection: Connection, due: float) -> None:
        """With how many µs it is late: the mock's own fault, not the proxy's."""
        connection.reply(b'{"replica": %d, "late": %d}' % (self.place, (monotonic() - due) * 1e6))

    def crash(self) -> None:
        """As if it had been killed: the port is closed, and so is every connection."""
        self.down = True
        if self.server is not None:
            self.server.close()
        for connection in list(self.connections):
            connection.transport.abort()

    def start(self) -> None:
        self.down = False
        self.free = 0.0
        self.task = asyncio.get_running_loop().create_task(self.listen())

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self.port, backlog=4096)


class Connection(ServerConnection):
    all: tuple[Replica, ...] = ()

    def __init__(self, replica: Replica) -> None:
        super().__init__()
        self.replica = replica

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.replica.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.replica.connections.discard(self)

    def message(self, body: bytes) -> None:
        if self.url == CONTROL_PATH:
            self.replica.timer.forget_all()
            plan = msgspec.json.decode(body, type=Plan)
            for replica in self.all:
                replica.plan(plan)
            self.reply(b"{}")
        else:
            match = WORK_PATTERN.search(body)
            self.replica.serve(self, float(match[1]) if match else 0.001)


async def serve(ports: list[int]) -> None:
    timer = Timer(asyncio.get_running_loop())
    Connection.all = tuple(Replica(place, port, timer) for place, port in enumerate(ports))
    for replica in Connection.all:
        await replica.listen()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve([int(text) for text in sys.argv[1:]]))
