"""The demo's traffic: small and large requests mixed, due at random times whether the last was answered or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from random import Random

import msgspec

from ..control.errors import StartError
from .client import Client
from .corpus import MODEL, SENTENCES
from .fleet import ReplicaProcess
from .settings import HOST
from .tally import Tally

PATH = "/v1/embeddings"
SMALL, LARGE = (1, 4), (20, 60)  # sentences, from and to
LARGE_SHARE = 0.2
MEAN = (1 - LARGE_SHARE) * sum(SMALL) / 2 + LARGE_SHARE * sum(LARGE) / 2  # sentences of a request
LOAD = 0.4  # of what the replicas can do: the machine has other work, and round_robin wastes half of them
MEASURE = 0.5  # seconds
LATE = 30.0  # seconds for the last answers; they take far less, unless somebody stopped a replica


def request(rng: Random) -> tuple[bytes, int]:
    """A body, and of how many sentences it is."""
    count = rng.randint(*(LARGE if rng.random() < LARGE_SHARE else SMALL))
    return msgspec.json.encode({"model": MODEL, "input": rng.choices(SENTENCES, k=count)}), count


async def capacity(fleet: Sequence[ReplicaProcess], seconds: float = MEASURE) -> float:
    """Requests a second that the replicas can do, all at work at once as they will be: cores are shared."""
    speeds = await asyncio.gather(*(_speed(replica, seconds) for replica in fleet))
    return sum(speeds) / MEAN


async def _speed(replica: ReplicaProcess, seconds: float) -> float:
    """Sentences a second."""
    client, rng = Client(HOST, replica.port), Random(replica.passes)
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
    """`start`, then `stop`; `tally` is what came of it."""

    def __init__(self, host: str, port: int, rate: float, rng: Random) -> None:
        self.rate = rate
        self._client = Client(host, port)
        self._rng = rng
        self._asking: set[asyncio.Task[None]] = set()

    def start(self) -> Tally:
        self.tally = Tally(time.monotonic())
        self._issuing = asyncio.create_task(self._issue())
        return self.tally

    async def stop(self, patience: float = LATE) -> None:
        """No new requests; those under way have so many seconds."""
        self._issuing.cancel()
        with suppress(asyncio.CancelledError):
            await self._issuing
        if self._asking:
            _, late = await asyncio.wait(self._asking, timeout=patience)
            for task in late:
                task.cancel()
                self.tally.failure(f"no answer {patience:g} s after the end")
            await asyncio.gather(*late, return_exceptions=True)
        await self._client.close()

    async def _issue(self) -> None:
        due = self.tally.began
        while True:
            due += self._rng.expovariate(self.rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self._ask(due))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask(self, due: float) -> None:
        body, _ = request(self._rng)
        try:
            reply = await self._client.post(PATH, body)
        except Exception as problem:  # whatever it was: the client has no answer
            self.tally.failure(f"no answer: {type(problem).__name__}")
            return
        now = time.monotonic()
        if reply.status == 200:
            self.tally.answer(reply.headers.get("steelyard-replica", "?"), now - due, now)
        else:
            self.tally.failure(f"{reply.status} {reply.headers.get('steelyard-reason', '')}".rstrip())
