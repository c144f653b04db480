"""The demo's traffic: small and large requests mixed, due at random times whether the last was answered or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from random import Random

import msgspec

from ..control.errors import StartError
from .client import Client
from .corpus import MODEL, SENTENCES
from .fleet import HOST, ReplicaProcess
from .tally import Tally

PATH = "/v1/embeddings"
SMALL, LARGE = (1, 1), (4, 8)  # sentences, from and to
LARGE_SHARE = 0.15
MEAN = (1 - LARGE_SHARE) * sum(SMALL) / 2 + LARGE_SHARE * sum(LARGE) / 2  # sentences of a request
LOAD = 0.3  # of what the replicas can do; from 3/7 on, round_robin gives the slowest more than it can do
MEASURE = 1.0  # seconds
LATE = 30.0  # seconds for the last answers; they take far less, unless somebody stopped a replica


def request(rng: Random) -> tuple[bytes, int]:
    """A body, and of how many sentences it is."""
    count = rng.randint(*(LARGE if rng.random() < LARGE_SHARE else SMALL))
    return msgspec.json.encode({"model": MODEL, "input": rng.choices(SENTENCES, k=count)}), count


async def capacity(fleet: Iterable[ReplicaProcess], seconds: float = MEASURE) -> float:
    """Requests a second that the replicas can do, all at work at once as they will be: cores are shared."""
    speeds = await asyncio.gather(*(_speed(replica, seconds) for replica in fleet))
    return sum(speeds) / MEAN


async def _speed(replica: ReplicaProcess, seconds: float) -> float:
    """Sentences a second."""
    client, rng = Client(HOST, replica.port), Random(1)
    done, began = 0, time.monotonic()
    try:
        while time.monotonic() - began < seconds:
            body, count = request(rng)
            await client.post(PATH, body)
            done += count
    except (OSError, EOFError) as problem:
        raise StartError(f"replica {replica.name} does not answer: {problem}") from None
    finally:
        await client.close()
    return done / (time.monotonic() - began)


class Traffic:
    """`start`, then `stop`; `tally` is what came of all of it, `part` of what was sent since the last `turn`."""

    def __init__(self, host: str, port: int, rate: float, rng: Random) -> None:
        self.rate = rate
        self._client = Client(host, port)
        self._rng = rng
        self._asking: set[asyncio.Task[None]] = set()
        self._issuing: asyncio.Task[None] | None = None

    def start(self) -> Tally:
        self.tally = Tally(time.monotonic())
        self.turn(self.rate, self._rng)
        return self.tally

    def turn(self, rate: float, rng: Random) -> Tally:
        """From now on at this rate. With an rng of the same seed, the same requests come at the same distances."""
        self._cease()
        self.rate, self._rng = rate, rng
        self.part = Tally(time.monotonic())
        self._issuing = asyncio.create_task(self._issue(self.part))
        return self.part

    async def pause(self, patience: float) -> None:
        """No new ones until the next `turn`; returns when all are answered, or after so many seconds."""
        self._cease()
        if self._asking:
            await asyncio.wait(self._asking, timeout=patience)

    async def stop(self, patience: float = LATE) -> None:
        """No new requests; those under way have so many seconds."""
        self._cease()
        if self._asking:
            _, late = await asyncio.wait(self._asking, timeout=patience)
            for task in late:
                task.cancel()
                self.tally.failure(f"no answer {patience:g} s after the end")
            await asyncio.gather(*late, return_exceptions=True)
        await self._client.close()

    def _cease(self) -> None:
        if self._issuing is not None:
            self._issuing.cancel()

    async def _issue(self, part: Tally) -> None:
        due, rng = part.began, self._rng
        with suppress(asyncio.CancelledError):
            while True:
                due += rng.expovariate(self.rate)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                task = asyncio.create_task(self._ask(request(rng)[0], due, part))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    async def _ask(self, body: bytes, due: float, part: Tally) -> None:
        try:
            reply = await self._client.post(PATH, body)
        except Exception as problem:  # whatever it was: the client has no answer
            self._failed(f"no answer: {type(problem).__name__}", part)
            return
        now = time.monotonic()
        if reply.status != 200:
            self._failed(f"{reply.status} {reply.headers.get('steelyard-reason', '')}".rstrip(), part)
            return
        for tally in (self.tally, part):
            tally.answer(reply.headers.get("steelyard-replica", "?"), now - due, now)

    def _failed(self, what: str, part: Tally) -> None:
        self.tally.failure(what)
        part.failure(what)
