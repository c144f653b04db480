"""Closed-loop inferences of very different memory sizes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from time import monotonic

import uvloop

from ..mocks.memory_device import HostedModel

MIB = 1 << 20
STATUS_BROKEN = 0  # the status of what got no answer
HEAD = (
    b"POST /v2/models/%b/infer HTTP/1.1\r\nhost: box\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
)


@dataclass(frozen=True)
class RequestMix:
    """What is asked for: one in `rare` is large, the others are small."""

    small: tuple[int, int] = (1 * MIB, 4 * MIB)
    large: tuple[int, int] = (30 * MIB, 50 * MIB)
    rare: int = 6
    shortest: float = 0.02  # seconds
    per_mib: float = 0.004  # and for each MiB

    def jobs(self, models: Sequence[HostedModel], seed: int) -> Iterator[Job]:
        """Without an end; the same for the same seed."""
        rng = Random(seed)
        while True:
            size = rng.randint(*(self.large if rng.randrange(self.rare) == 0 else self.small))
            model = rng.choice(models)
            yield Job(model.name, model.elements(size), self.shortest + self.per_mib * size / MIB, size)


@dataclass(frozen=True)
class Job:
    model: str
    elements: int
    seconds: float  # that it takes
    size: int  # bytes, about

    def body(self) -> bytes:
        """The tensor itself is left out: only its shape counts, and bytes on the way are not what is measured."""
        tensor = {"name": "x", "datatype": "FP32", "shape": [self.elements], "data": []}
        return json.dumps({"inputs": [tensor], "parameters": {"seconds": self.seconds}}).encode()

    def request(self, headers: dict[str, str]) -> bytes:
        body = self.body()
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
        return HEAD % (self.model.encode(), more, len(body)) + body


@dataclass(frozen=True)
class Answer:
    job: Job
    status: int
    reason: str
    said: str  # the body
    seconds: float

    @property
    def in_use(self) -> int:
        """Bytes of the device in use at the request's peak, all processes."""
        return int(json.loads(self.said)["parameters"]["in_use"]) if self.status == 200 else 0


@dataclass
class Burst:
    answers: list[Answer] = field(default_factory=list)
    seconds: float = 0.0  # that it took

    @property
    def good(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status == 200]

    @property
    def failed(self) -> Counter[str]:
        bad = (answer for answer in self.answers if answer.status != 200)
        return Counter(f"{answer.status or 'broken'} {answer.reason}".strip() for answer in bad)

    @property
    def peak(self) -> int:
        return max((answer.in_use for answer in self.answers), default=0)


class Client:
    """One connection, made anew where it broke."""

    def __init__(self, port: int, headers: dict[str, str]) -> None:
        self.port = port
        self.headers = headers
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, job: Job) -> Answer:
        begin = monotonic()
        try:
            status, reason, said = await self._exchange(job)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            status, reason, said = STATUS_BROKEN, "", ""
        return Answer(job, status, reason, said, monotonic() - begin)

    async def _exchange(self, job: Job) -> tuple[int, str, str]:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        writer.write(job.request(self.headers))
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        said = (await reader.readexactly(int(headers["content-length"]))).decode()
        if headers.get("connection") == "close":
            self.close()
        return int(first.split()[1]), headers.get("steelyard-reason", ""), said

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def send(
    port: int, jobs: Iterable[Job], clients: int, seconds: float = float("inf"), headers: dict[str, str] | None = None
) -> Burst:
    """Until there are no more jobs, or for so long; what has begun by then is waited for."""
    burst, todo, begin = Burst(), iter(jobs), monotonic()

    async def ask_all() -> None:
        client = Client(port, headers or {})
        while monotonic() < begin + seconds and (job := next(todo, None)) is not None:
            burst.answers.append(await client.ask(job))
            if burst.answers[-1].status != 200:
                await asyncio.sleep(0.01)  # as any client would; or it asks a dead server all the time
        client.close()

    await asyncio.gather(*(ask_all() for _ in range(clients)))
    burst.seconds = monotonic() - begin
    return burst


def run(port: int, jobs: Iterable[Job], clients: int, seconds: float = float("inf"), **headers: str) -> Burst:
    return uvloop.run(send(port, jobs, clients, seconds, headers))
