"""A loop without sockets, whose clock moves when the test says so, and the ends of the connections made in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .transports import FakeTransport


class Loop(asyncio.SelectorEventLoop):
    """Runs what is due and returns. Connections are made when the test accepts them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.dials: list[Dial] = []
        self.wires: list[Wire] = []  # to replicas
        self.problems: list[Any] = []
        self.held = False  # several things happen in one turn of the loop
        self.set_exception_handler(lambda _, context: self.problems.append(context))

    def time(self) -> float:
        return self.now

    def settle(self) -> None:
        """Until nothing is left to do at this time."""
        while not self.held:
            self.stop()
            self.run_forever()
            if not self._ready and (self._next() or self.now + 1) > self.now:  # type: ignore[attr-defined]
                return

    def _next(self) -> float | None:
        times = [handle.when() for handle in self._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        return min(times, default=None)

    def pass_time(self, seconds: float) -> None:
        """Stops at every timer on the way."""
        end = self.now + seconds
        self.settle()
        while (when := self._next()) is not None and when <= end:
            self.now = max(self.now, when)
            self.settle()
        self.now = end
        self.settle()

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: Any = None, **how: Any
    ) -> Any:
        dial = Dial(self, factory, f"{host}:{port}", how)
        self.dials.append(dial)
        return await dial.made

    async def create_unix_connection(self, factory: Any, path: Any = None, **how: Any) -> Any:  # type: ignore[override]
        return await self.create_connection(factory, "unix", path, **how)


class Dial:
    """The gateway wants a connection to a replica."""

    def __init__(self, loop: Loop, factory: Callable[[], Any], place: str, how: dict[str, Any]) -> None:
        self.loop = loop
        self.place = place
        self.how = how
        self.made: asyncio.Future[Any] = loop.create_future()
        self.factory = factory

    @property
    def waiting(self) -> bool:
        return not self.made.done()

    def accept(self) -> Wire:
        protocol = self.factory()
        transport = FakeTransport(self.loop, protocol, ("127.0.0.1", 9000))
        protocol.connection_made(transport)
        self.made.set_result((transport, protocol))
        self.loop.settle()
        wire = Wire(transport, self.place)
        self.loop.wires.append(wire)
        return wire

    def fail(self, problem: Exception | None = None) -> None:
        self.made.set_exception(problem or ConnectionRefusedError(111, "refused"))
        self.loop.settle()


class Wire:
    """One end of a connection, in the hands of the test: a client's or a replica's."""

    def __init__(self, transport: FakeTransport, place: str = "") -> None:
        self.transport = transport
        self.place = place
        self._read = 0

    @property
    def loop(self) -> Loop:
        loop = self.transport.loop
        assert isinstance(loop, Loop)
        return loop

    def says(self, *pieces: bytes) -> None:
        for data in pieces:
            self.transport.say(data)
            self.loop.settle()

    def hears(self) -> bytes:
        """What came since the last look."""
        self.loop.settle()
        data = bytes(self.transport.heard[self._read :])
        self._read = len(self.transport.heard)
        return data

    def ends(self) -> None:
        self.transport.end()
        self.loop.settle()

    def breaks(self) -> None:
        self.transport.reset()
        self.loop.settle()

    def stops_reading(self) -> None:
        self.transport.slow = True

    def reads_on(self) -> None:
        self.transport.read_on()
        self.loop.settle()

    @property
    def closed(self) -> bool:
        return self.transport.lost

    @property
    def cut_off(self) -> bool:
        """Closed without a clean end."""
        return self.transport.lost and self.transport.aborted
