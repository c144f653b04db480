"""The demo's traffic: small and large requests mixed, due at random times whether the last was answered or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from random import Random

import httpx
import msgspec

from ..control.errors import StartError
from .corpus import MODEL_NAME, SENTENCES
from .replica.endpoints import EMBEDDINGS_PATH
from .replica_processes import ReplicaProcess, http_client
from .traffic_stats import TrafficStats

SMALL_SENTENCES, LARGE_SENTENCES = (1, 1), (4, 8)  # sentences, from and to
LARGE_SHARE = 0.15
MEAN_SENTENCES = ((1 - LARGE_SHARE) * sum(SMALL_SENTENCES) + LARGE_SHARE * sum(LARGE_SENTENCES)) / 2  # of a request
MAX_CONNECTIONS = 200  # when all are busy, requests wait here, and their wait counts
LOAD_SHARE = 0.3  # of what the replicas can do; from 3/7 on, round_robin gives the slowest more than it can do
MEASURE_SECONDS = 1.0  # seconds
LAST_ANSWERS_TIMEOUT_SECONDS = 30.0  # they take far less, unless a replica was stopped by hand


def make_request(rng: Random) -> tuple[bytes, int]:
    """A body, and of how many sentences it is."""
    count = rng.randint(*(LARGE_SENTENCES if rng.random() < LARGE_SHARE else SMALL_SENTENCES))
    return msgspec.json.encode({"model": MODEL_NAME, "input": rng.choices(SENTENCES, k=count)}), count


async def measure_capacity(fleet: Iterable[ReplicaProcess], seconds: float = MEASURE_SECONDS) -> float:
    """Requests a second that the replicas can do, all at work at once as they will be: cores are shared."""
    speeds = await asyncio.gather(*(_speed(replica, seconds) for replica in fleet))
    return sum(speeds) / MEAN_SENTENCES


async def _speed(replica: ReplicaProcess, seconds: float) -> float:
    """Sentences a second."""
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
    """`start`, then `stop`; `tally` is what came of all of it, `part` of what was sent since the last `turn`."""

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
        """From now on at this rate. With an rng of the same seed, the same requests come at the same distances."""
        self._stop_issuing()
        self.rate, self._rng = rate, rng
        self.part_stats = TrafficStats(time.monotonic())
        self._issuer = asyncio.create_task(self._issue(self.part_stats))
        return self.part_stats

    async def pause(self, patience: float) -> None:
        """No new ones until the next `turn`; returns when all are answered, or after so many seconds."""
        self._stop_issuing()
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=patience)

    async def stop(self, patience: float = LAST_ANSWERS_TIMEOUT_SECONDS) -> None:
        """No new requests; those under way have so many seconds."""
        self._stop_issuing()
        if self._in_flight:
            _, late = await asyncio.wait(self._in_flight, timeout=patience)
            for task in late:
                task.cancel()
                self.stats.record_failure(f"no answer {patience:g} s after the end")
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
        for tally in (self.stats, part):
            tally.record_answer(reply.headers.get("steelyard-replica", "?"), now - due, now)

    def _failed(self, what: str, part: TrafficStats) -> None:
        self.stats.record_failure(what)
        part.record_failure(what)
