"""Requests sent when they are due, whatever became of the ones before; latency counts from when they were due."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

import uvloop

from steelyard.simulate.engine.job import Job

from .chat_request import PATH, head
from .http_protocol import ClientConnection
from .timer import Timer

MAX_PROMPT_CHARS = 200_000
FINAL_TIMEOUT_SECONDS = 60.0
REPLICA_PATTERN = re.compile(rb'"replica": (\d+), "late": (\d+)')
BODY = b'{"model": "bench", "metadata": {"work": "%.9f"}, "messages": [{"role": "user", "content": "%b"}]}'


@dataclass(frozen=True)
class Answer:
    """`seconds` since the request was due; None: it failed."""

    job: Job
    seconds: float | None


@dataclass
class Outcome:
    answers: list[Answer] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)  # seconds from due to sent: the generator's own fault
    lates: list[float] = field(default_factory=list)  # seconds from due to answered: the mock replicas' own fault
    statuses: Counter[str] = field(default_factory=Counter)  # of what failed
    replicas: Counter[int] = field(default_factory=Counter)

    @property
    def lag(self) -> float:
        """How late the benchmark itself was, at its worse end; p99."""
        return max(p99(self.lags), p99(self.lates))


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))] if values else 0.0


def request(port: int, job: Job) -> bytes:
    """A prompt as long as the job's feature says: all that a proxy can know of the work to come."""
    text = BODY % (job.work, b"x" * max(1, min(MAX_PROMPT_CHARS, round(job.features[0]))))
    return head(port, PATH, len(text)) + text


class RequestConnection(ClientConnection):
    """A connection that carries one request at a time."""

    def __init__(self, load: OpenLoop) -> None:
        super().__init__()
        self.load = load
        self.job: Job | None = None

    def call(self, job: Job) -> None:
        self.job = job
        self.send(request(self.load.port, job))

    def response(self, status: int | None, body: bytes) -> None:
        job, self.job = self.job, None
        assert job is not None
        if not self.lost and self.parser.should_keep_alive():
            self.load.idle.append(self)
        else:
            self.transport.close()
        self.load.answered(job, status, body)


class OpenLoop:
    def __init__(self, port: int, begin: float) -> None:
        self.port = port
        self.begin = begin
        self.idle: list[RequestConnection] = []
        self.outcome = Outcome()
        self.left = 0
        self.over = asyncio.Event()
        self.opening: set[asyncio.Task[None]] = set()

    async def run(self, jobs: Iterable[Job], progress: Callable[[], None]) -> Outcome:
        loop = asyncio.get_running_loop()
        timer = Timer(loop)
        last = 0.0
        for job in jobs:
            timer.at(self.begin + job.intended_at, lambda job=job: self.send(job))  # type: ignore[misc]
            self.left += 1
            last = job.intended_at
        while not self.over.is_set() and monotonic() < self.begin + last + FINAL_TIMEOUT_SECONDS:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), 0.5)
            progress()
        timer.close()
        self.give_up()
        return self.outcome

    def send(self, job: Job) -> None:
        self.outcome.lags.append(monotonic() - self.begin - job.intended_at)
        while self.idle:
            caller = self.idle.pop()
            if not caller.lost:
                caller.call(job)
                return
        task = asyncio.get_running_loop().create_task(self.open(job))
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)

    async def open(self, job: Job) -> None:
        try:
            _, caller = await asyncio.get_running_loop().create_connection(
                lambda: RequestConnection(self), "127.0.0.1", self.port
            )
        except OSError:
            self.answered(job, None, b"")
        else:
            caller.call(job)

    def answered(self, job: Job, status: int | None, body: bytes) -> None:
        if status == 200:
            self.outcome.answers.append(Answer(job, monotonic() - self.begin - job.intended_at))
            if match := REPLICA_PATTERN.search(body):
                self.outcome.replicas[int(match[1])] += 1
                self.outcome.lates.append(int(match[2]) / 1e6)
        else:
            self.outcome.answers.append(Answer(job, None))
            self.outcome.statuses[str(status or "broken")] += 1
        self.left -= 1
        if not self.left:
            self.over.set()

    def give_up(self) -> None:
        if self.left:
            self.outcome.statuses["no answer"] += self.left


def run(port: int, begin: float, jobs: Iterable[Job], progress: Callable[[], None]) -> Outcome:
    async def main() -> Outcome:
        return await OpenLoop(port, begin).run(jobs, progress)

    return uvloop.run(main())
