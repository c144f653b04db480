"""The simulator's conversations over real HTTP: each turn is a streamed chat completion with all that was said before.

A conversation begins when it is due, whatever became of others; a further turn is due a while after the answer before
it. Time to the first token counts from when the turn was due.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import shake_128
from time import monotonic

import msgspec
import uvloop

from steelyard.simulate.engine.job import Job
from steelyard.simulate.llm.conversations import Conversation, ConversationJob, ConversationSource

from ..mocks.engine_replica import TOKEN_BYTES, ChatRequest, Message
from .chat_request import PATH, head
from .http_protocol import ClientConnection
from .open_loop import p99
from .timer import Timer

FINAL_TIMEOUT_SECONDS = 120.0
CONTENT_PATTERN = re.compile(rb'"content":\s*"([0-9a-f]*)"')
NUMBERS_PATTERN = re.compile(rb'"(prompt_tokens|completion_tokens|cached_tokens)":\s*(\d+)|port (\d+) late (\d+)')


@dataclass(frozen=True)
class StreamTimes:
    """Of one answer, in seconds: until its first token, since the turn was due, and for a token after that."""

    due: float
    first_token: float
    per_token: float
    prompt_tokens: int
    cached_tokens: int


@dataclass
class Outcome:
    answers: list[StreamTimes] = field(default_factory=list)
    failures: list[float] = field(default_factory=list)  # when they were due
    lags: list[float] = field(default_factory=list)  # seconds from due to sent: the generator's own fault
    lates: list[float] = field(default_factory=list)  # seconds that tokens were late: the mock engines' own fault
    statuses: Counter[str] = field(default_factory=Counter)  # of what failed
    ports: Counter[int] = field(default_factory=Counter)  # answers by engine

    @property
    def lag(self) -> float:
        """How late the benchmark itself was, at its worse end; p99."""
        return max(p99(self.lags), p99(self.lates))


def text_of(name: str, tokens: int) -> str:
    """Always the same of the same name, and with nothing in common with another's."""
    return shake_128(name.encode()).hexdigest(tokens * TOKEN_BYTES // 2)


class Dialogue:
    """What has been said in a conversation, as messages."""

    def __init__(self, conversation: Conversation, seed: int) -> None:
        self.name = f"{seed}/{conversation.number}"
        self.messages: list[Message] = []
        if conversation.shared_tokens:
            self.messages.append(
                Message("system", text_of(f"shared/{conversation.shared}", conversation.shared_tokens))
            )

    def ask(self, prompt_tokens: int) -> None:
        """One more message, which makes the prompt so long."""
        said = len(ChatRequest(self.messages).text()) // TOKEN_BYTES
        text = text_of(f"{self.name}/{len(self.messages)}", max(1, prompt_tokens - said))
        self.messages.append(Message("user", text))

    def body(self, answer_tokens: int) -> bytes:
        return msgspec.json.encode(
            {
                "model": "bench",
                "metadata": {"answer_tokens": str(answer_tokens)},  # for the mock engine alone
                "messages": self.messages,
                "max_tokens": 4096,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )


class StreamConnection(ClientConnection):
    """A connection that carries one request at a time, and notes when the first token came."""

    def __init__(self, load: ConversationLoad) -> None:
        super().__init__()
        self.load = load
        self.job: ConversationJob | None = None
        self.first = 0.0

    def call(self, job: ConversationJob, request: bytes) -> None:
        self.job, self.first = job, 0.0
        self.send(request)

    def on_body(self, data: bytes) -> None:
        self.first = self.first or monotonic()
        super().on_body(data)

    def response(self, status: int | None, body: bytes) -> None:
        job, self.job = self.job, None
        assert job is not None
        if not self.lost and self.parser.should_keep_alive():
            self.load.idle.append(self)
        else:
            self.transport.close()
        self.load.answered(job, status, body, self.first)


class ConversationLoad:
    """Sends the jobs of a ConversationSource, as the simulation does (simulate/llm/conversations.py: Driver)."""

    def __init__(self, port: int, begin: float, seed: int) -> None:
        self.port = port
        self.begin = begin  # CLOCK_MONOTONIC
        self.seed = seed
        self.arrival_limit = -1
        self.on_request_end: Callable[[Job, bool, float], None] | None = None
        self.idle: list[StreamConnection] = []
        self.outcome = Outcome()
        self._dialogues: dict[Conversation, Dialogue] = {}
        self._sent = self._ended = 0
        self._over = asyncio.Event()
        self._opening: set[asyncio.Task[None]] = set()
        self._timer = Timer(asyncio.get_running_loop())

    async def run(self, source: ConversationSource, progress: Callable[[], None]) -> Outcome:
        source.attach(self)
        self._begin_next(iter(source))
        last = monotonic()
        while not self._over.is_set() and monotonic() < last + FINAL_TIMEOUT_SECONDS:
            before = self._ended
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), 0.5)
            last = monotonic() if self._ended > before or self._sent < self.arrival_limit else last
            progress()
        self._timer.close()
        self.outcome.statuses["no answer"] += self._sent - self._ended
        return self.outcome

    def submit_at(self, when: float, job: Job) -> None:
        assert isinstance(job, ConversationJob)
        self._timer.at(self.begin + when, lambda: self._send(job))

    def _begin_next(self, jobs: Iterator[Job]) -> None:
        job = next(jobs)
        assert isinstance(job, ConversationJob)

        def due() -> None:
            self._send(job)
            if self._sent < self.arrival_limit:
                self._begin_next(jobs)

        self._timer.at(self.begin + job.intended_at, due)

    def _send(self, job: ConversationJob) -> None:
        if self._sent >= self.arrival_limit:
            return
        self._sent += 1
        self.outcome.lags.append(monotonic() - self.begin - job.intended_at)
        dialogue = self._dialogues.get(job.conversation)
        if dialogue is None:
            dialogue = self._dialogues[job.conversation] = Dialogue(job.conversation, self.seed)
        dialogue.ask(job.prompt_tokens)
        body = dialogue.body(job.output_tokens)
        request = head(self.port, PATH, len(body)) + body
        while self.idle:
            caller = self.idle.pop()
            if not caller.lost:
                caller.call(job, request)
                return
        task = asyncio.get_running_loop().create_task(self._open(job, request))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, job: ConversationJob, request: bytes) -> None:
        try:
            _, caller = await asyncio.get_running_loop().create_connection(
                lambda: StreamConnection(self), "127.0.0.1", self.port
            )
        except OSError:
            self.answered(job, None, b"", 0.0)
        else:
            caller.call(job, request)

    def answered(self, job: ConversationJob, status: int | None, body: bytes, first: float) -> None:
        now = monotonic()
        whole = status == 200 and b"[DONE]" in body
        if whole:
            self._note(job, body, first, now)
        else:
            self.outcome.failures.append(job.intended_at)
            self.outcome.statuses["broken" if status in (None, 200) else str(status)] += 1
        dialogue = self._dialogues[job.conversation]
        dialogue.messages.append(Message("assistant", b"".join(CONTENT_PATTERN.findall(body)).decode()))
        assert self.on_request_end is not None
        self.on_request_end(job, whole, now - self.begin)
        if not whole or job.conversation.turn >= len(job.conversation.turns):
            del self._dialogues[job.conversation]
        self._ended += 1
        if self._ended >= self.arrival_limit:
            self._over.set()

    def _note(self, job: ConversationJob, body: bytes, first: float, now: float) -> None:
        numbers: dict[bytes, int] = {}
        for name, number, port, late in NUMBERS_PATTERN.findall(body):
            if name:
                numbers[name] = int(number)
            else:
                self.outcome.ports[int(port)] += 1
                self.outcome.lates.append(int(late) / 1e6)
        further = max(1, numbers.get(b"completion_tokens", 0) - 1)
        times = StreamTimes(
            job.intended_at,
            first - self.begin - job.intended_at,
            (now - first) / further,
            numbers.get(b"prompt_tokens", 0),
            numbers.get(b"cached_tokens", 0),
        )
        self.outcome.answers.append(times)


def run(port: int, begin: float, source: ConversationSource, seed: int, progress: Callable[[], None]) -> Outcome:
    async def main() -> Outcome:
        return await ConversationLoad(port, begin, seed).run(source, progress)

    return uvloop.run(main())
