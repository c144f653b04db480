"""The demo's traffic: small and large requests, due at random times (open loop), and what clients measured."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from math import ceil, nan
from random import Random
from typing import NamedTuple

import httpx
import msgspec

from ..control.errors import StartError
from ..core.statistics.histogram import Histogram
from .corpus import MODEL_NAME, SENTENCES
from .replica.endpoints import EMBEDDINGS_PATH
from .replica_processes import ReplicaProcess, http_client

SMALL_SENTENCES, LARGE_SENTENCES = (1, 1), (4, 8)  # sentences, from and to
LARGE_SHARE = 0.15
MEAN_SENTENCES = ((1 - LARGE_SHARE) * sum(SMALL_SENTENCES) + LARGE_SHARE * sum(LARGE_SENTENCES)) / 2  # of a request
MAX_CONNECTIONS = 200  # beyond, requests wait, and that counts
LOAD_SHARE = 0.3  # of the capacity; from 3/7 on, round_robin overloads the slowest
MEASURE_SECONDS = 1.0
RECENT_SECONDS = 10.0
LAST_ANSWERS_TIMEOUT_SECONDS = 30.0  # unless a replica was stopped by hand


def make_request(rng: Random) -> tuple[bytes, int]:
    count = rng.randint(*(LARGE_SENTENCES if rng.random() < LARGE_SHARE else SMALL_SENTENCES))
    return msgspec.json.encode({"model": MODEL_NAME, "input": rng.choices(SENTENCES, k=count)}), count


async def measure_capacity(fleet: Iterable[ReplicaProcess], seconds: float = MEASURE_SECONDS) -> float:
    """Requests a second that all replicas do at once: they share cores."""
    speeds = await asyncio.gather(*(_speed(replica, seconds) for replica in fleet))
    return sum(speeds) / MEAN_SENTENCES


async def _speed(replica: ReplicaProcess, seconds: float) -> float:
    rng = Random(1)
    done, began = 0, time.monotonic()
    try:
        async with http_client(replica.url) as client:
            while time.monotonic() - began < seconds:
                body, count = make_request(rng)
                await client.post(EMBEDDINGS_PATH, content=body)
                done += count
    except httpx.TransportError as problem:
        raise StartError(f"replica {replica.name} does not answer: {problem}") from None
    return done / (time.monotonic() - began)


class Traffic:
    """`stats` is of all requests, `part_stats` of those since the last `start_part`."""

    def __init__(self, host: str, port: int, rate: float, rng: Random) -> None:
        self.rate = rate
        self._client = http_client(f"http://{host}:{port}", MAX_CONNECTIONS)
        self._rng = rng
        self._in_flight: set[asyncio.Task[None]] = set()
        self._issuer: asyncio.Task[None] | None = None

    def start(self) -> TrafficStats:
        self.stats = TrafficStats(time.monotonic())
        self.start_part(self.rate, self._rng)
        return self.stats

    def start_part(self, rate: float, rng: Random) -> TrafficStats:
        """From now on at this rate; the same seed gives the same requests at the same distances."""
        self._stop_issuing()
        self.rate, self._rng = rate, rng
        self.part_stats = TrafficStats(time.monotonic())
        self._issuer = asyncio.create_task(self._issue(self.part_stats))
        return self.part_stats

    async def pause(self, timeout: float) -> None:
        """Until the next `start_part`; returns when all are answered, or after `timeout`."""
        self._stop_issuing()
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=timeout)

    async def stop(self, timeout: float = LAST_ANSWERS_TIMEOUT_SECONDS) -> None:
        self._stop_issuing()
        if self._in_flight:
            _, late = await asyncio.wait(self._in_flight, timeout=timeout)
            for task in late:
                task.cancel()
                self.stats.record_failure(f"no answer {timeout:g} s after the end")
            await asyncio.gather(*late, return_exceptions=True)
        await self._client.aclose()

    def _stop_issuing(self) -> None:
        if self._issuer is not None:
            self._issuer.cancel()

    async def _issue(self, part: TrafficStats) -> None:
        due, rng = part.began, self._rng
        with suppress(asyncio.CancelledError):
            while True:
                due += rng.expovariate(self.rate)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                task = asyncio.create_task(self._ask(make_request(rng)[0], due, part))
                self._in_flight.add(task)
                task.add_done_callback(self._in_flight.discard)

    async def _ask(self, body: bytes, due: float, part: TrafficStats) -> None:
        try:
            reply = await self._client.post(EMBEDDINGS_PATH, content=body)
        except Exception as problem:  # whatever it was: the client has no answer
            self._failed(f"no answer: {type(problem).__name__}", part)
            return
        now = time.monotonic()
        if reply.status_code != 200:
            self._failed(f"{reply.status_code} {reply.headers.get('steelyard-reason', '')}".rstrip(), part)
            return
        for stats in (self.stats, part):
            stats.record_answer(reply.headers.get("steelyard-replica", "?"), now - due, now)

    def _failed(self, what: str, part: TrafficStats) -> None:
        self.stats.record_failure(what)
        part.record_failure(what)


class Recent(NamedTuple):
    """Answers of the last RECENT_SECONDS."""

    rate: float
    p50: float
    p99: float


class TrafficStats:
    def __init__(self, began: float) -> None:
        self.began = began
        self.latency = Histogram()  # from when a request was due
        self.answered: Counter[str] = Counter()  # by replica
        self.failed: Counter[str] = Counter()  # by what went wrong
        self._recent: deque[tuple[float, float]] = deque()

    @property
    def requests(self) -> int:
        return self.latency.count + self.failures

    @property
    def failures(self) -> int:
        return self.failed.total()

    def record_answer(self, replica: str, seconds: float, now: float) -> None:
        self.answered[replica] += 1
        self.latency.add(seconds)
        self._recent.append((now, seconds))

    def record_failure(self, what: str) -> None:
        self.failed[what] += 1

    def merged_with(self, other: TrafficStats) -> TrafficStats:
        both = TrafficStats(min(self.began, other.began))
        for stats in (self, other):
            both.latency.merge(stats.latency)
            both.answered.update(stats.answered)
            both.failed.update(stats.failed)
        return both

    def share(self, replica: str) -> float:
        return self.answered[replica] / self.latency.count if self.latency.count else 0.0

    def recent(self, now: float) -> Recent:
        while self._recent and self._recent[0][0] < now - RECENT_SECONDS:
            self._recent.popleft()
        ordered = sorted(seconds for _, seconds in self._recent)
        span = min(RECENT_SECONDS, max(now - self.began, 1e-9))
        return Recent(len(ordered) / span, _quantile(ordered, 0.5), _quantile(ordered, 0.99))


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[ceil(q * len(ordered)) - 1] if ordered else nan
