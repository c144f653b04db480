"""The demo's traffic against a server that answers what it is told, and what is counted of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from math import isnan
from random import Random

import msgspec
import pytest

from steelyard.control.errors import StartError
from steelyard.demo import traffic as traffic_module
from steelyard.demo.replica_processes import ReplicaProcess
from steelyard.demo.traffic import (
    LARGE_SENTENCES,
    LARGE_SHARE,
    MEAN_SENTENCES,
    SMALL_SENTENCES,
    Traffic,
    TrafficStats,
    make_request,
    measure_capacity,
)

OK = b"HTTP/1.1 200 OK\r\nsteelyard-replica: fast\r\ncontent-length: 2\r\n\r\n{}"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nsteelyard-reason: no_replica\r\ncontent-length: 0\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\nsteelyard-replica: half\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
HALF = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}"
HIGH_RATE_PER_SECOND = 1000.0  # requests a second: the first comes soon


class Stub:
    """Gives the answers in turn, then `OK` for ever; `asked` is set when it has given them all."""

    def __init__(self, *answers: bytes, gate: asyncio.Event | None = None) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.gate = gate
        self.first, self.done = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.bodies.append(
                    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
                )
                self.first.set()
                if self.gate is not None:
                    await self.gate.wait()
                answer = self.answers.pop(0) if self.answers else OK
                writer.write(answer)
                if len(self.bodies) > 20 and not self.answers:
                    self.done.set()
                if answer in (CLOSING, HALF):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        async with server:
            yield int(server.sockets[0].getsockname()[1])
        if self.gate is not None:
            self.gate.set()
        await asyncio.gather(*filter(None, self._tasks))


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 120)

    asyncio.run(bounded())


def test_what_comes_back_is_counted() -> None:
    async def work() -> None:
        stub = Stub(BUSY, CLOSING, HALF, BUSY)
        async with stub.serving() as port:
            traffic = Traffic("127.0.0.1", port, HIGH_RATE_PER_SECOND, Random(1))
            stats = traffic.start()
            await stub.done.wait()
            await traffic.stop()
        assert stats.failed == {"503 no_replica": 2, "no answer: RemoteProtocolError": 1}
        assert (stats.answered["half"], stats.failures) == (1, 3)
        assert stats.answered["fast"] == len(stub.bodies) - 4
        assert stats.requests == len(stub.bodies)

    run(work())


def test_nobody_there() -> None:
    async def work() -> None:
        async with Stub().serving() as port:
            pass
        traffic = Traffic("127.0.0.1", port, HIGH_RATE_PER_SECOND, Random(1))
        stats = traffic.start()
        while not stats.requests:
            await asyncio.sleep(0)
        await traffic.stop()
        assert stats.failures == stats.requests
        assert set(stats.failed) == {"no answer: ConnectError"}
        with pytest.raises(StartError, match="replica fast does not answer"):
            await measure_capacity([ReplicaProcess("fast", 1.0, 1, port)])

    run(work())


def test_waiting_counts_from_when_a_request_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever measures from when it was sent measures a slow server as a fast one."""
    monkeypatch.setattr(traffic_module, "MAX_CONNECTIONS", 1)

    async def work() -> None:
        gate = asyncio.Event()
        stub = Stub(gate=gate)
        async with stub.serving() as port:
            traffic = Traffic("127.0.0.1", port, HIGH_RATE_PER_SECOND, Random(1))
            stats = traffic.start()
            await stub.first.wait()
            stuck = time.monotonic()
            await asyncio.sleep(0.2)  # in which requests become due that cannot be sent
            held = time.monotonic() - stuck
            gate.set()
            await stub.done.wait()
            await traffic.stop()
        assert stats.latency.maximum >= held
        assert stats.latency.total > 3 * held  # not of the first alone
        assert stats.requests == len(stub.bodies)

    run(work())


def test_answers_that_never_come_are_failures() -> None:
    async def work() -> None:
        stub = Stub(gate=asyncio.Event())
        async with stub.serving() as port:
            traffic = Traffic("127.0.0.1", port, HIGH_RATE_PER_SECOND, Random(1))
            stats = traffic.start()
            await stub.first.wait()
            await traffic.stop(timeout=0.0)
        assert set(stats.failed) == {"no answer 0 s after the end"}
        assert stats.requests == stats.failures >= 1

    run(work())


def test_a_turn_repeats_the_same_requests_and_counts_apart() -> None:
    async def work() -> None:
        stub = Stub()
        async with stub.serving() as port:
            traffic = Traffic("127.0.0.1", port, HIGH_RATE_PER_SECOND, Random(5))
            stats = traffic.start()
            await stub.done.wait()
            await traffic.pause(20.0)
            first = traffic.part_stats
            sent = list(stub.bodies)
            stub.bodies.clear()
            second = traffic.start_part(2 * HIGH_RATE_PER_SECOND, Random(5))
            while second.requests < first.requests:
                await asyncio.sleep(0.01)
            await traffic.stop()
        assert first.requests == len(sent)
        assert not Counter(sent) - Counter(stub.bodies)  # perhaps more by then, and not in the order they were due
        assert stats.requests == first.requests + second.requests

    run(work())


def test_small_and_large_requests_are_mixed() -> None:
    rng = Random(3)
    made = [make_request(rng) for _ in range(20_000)]
    sizes = [size for _, size in made]
    assert all(
        SMALL_SENTENCES[0] <= size <= SMALL_SENTENCES[1] or LARGE_SENTENCES[0] <= size <= LARGE_SENTENCES[1]
        for size in sizes
    )
    assert sum(size >= LARGE_SENTENCES[0] for size in sizes) / len(sizes) == pytest.approx(LARGE_SHARE, abs=0.02)
    assert sum(sizes) / len(sizes) == pytest.approx(MEAN_SENTENCES, rel=0.05)
    for body, size in made[:50]:
        asked = msgspec.json.decode(body)
        assert (asked["model"], len(asked["input"])) == ("minilm", size)


def test_what_is_recent() -> None:
    stats = TrafficStats(100.0)
    assert isnan(stats.recent(100.0).p50)
    for number in range(1, 101):
        stats.record_answer("fast" if number % 4 else "slow", number / 1000, 100.0 + number / 50)
    recent = stats.recent(104.0)
    assert recent == (25.0, 0.050, 0.099)
    assert (stats.share("fast"), stats.share("nobody")) == (0.75, 0.0)
    stats.record_answer("fast", 3.0, 111.5)
    assert stats.recent(111.5).rate == pytest.approx((1 + 26) / 10)  # the others are longer ago
    assert stats.recent(120.0) == (0.1, 3.0, 3.0)
    assert stats.requests == 101
