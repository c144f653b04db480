"""A mock text-generating engine: `python -m benchmarks.mocks.engine_replica PORT [--engine 8b-h100] [--speed 1.0]`.

The simulator's engine (simulate/llm/server.py) by the clock: it computes nothing, and streams each token when the model
says that it is there. What it shows is vLLM's: SSE events, `usage` with cached tokens, /health, /v1/models, /metrics.

A token is four bytes of text; the prefix cache has blocks of 64 tokens. An answer's length is `answer_tokens` of the
request's `metadata`, which no proxy looks at, and its text follows from the prompt. POST /engine {"engine": "8b-a100",
"speed": 0.5} makes another engine of it, with an empty cache.

`/v1/chat/completions/render`, which vllm-router's `cache_aware` asks for the tokens of each prompt, answers at once.
Whatever else routers ask is 404: a generation there would count against the router that asked.

Limits: tokens that come within TICK_SECONDS share an event, as with vLLM's `--stream-interval`.
"""

from __future__ import annotations

import argparse
import asyncio
from hashlib import shake_128
from heapq import heappop, heappush
from itertools import count
from time import monotonic

import msgspec
import uvloop
from xxhash import xxh3_64_intdigest

from steelyard.simulate.engine.job import Job, TokenJob
from steelyard.simulate.llm.conversations import BLOCK_TOKENS
from steelyard.simulate.llm.model import KV_BLOCK_TOKENS, EngineModel, find_engine
from steelyard.simulate.llm.server import EngineServer

from ..load.chat_request import models
from ..load.http_protocol import ServerConnection
from ..load.timer import Timer

CONTROL_PATH = b"/engine"
CHAT_PATH = b"/v1/chat/completions"
RENDER_PATH = b"/v1/chat/completions/render"
READS = {b"/health": b"", b"/v1/models": models().encode(), b"/version": b'{"version": "0.32.0"}'}
NOT_FOUND = b'{"detail": "Not Found"}'
VOCABULARY = 128_000
TOKEN_BYTES = 4
TICK_SECONDS = 0.02
DEFAULT_ANSWER_TOKENS = 16
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


class EngineKind(msgspec.Struct, frozen=True):
    engine: str = "8b-h100"
    speed: float = 1.0


class Message(msgspec.Struct):
    role: str
    content: str


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class ChatRequest(msgspec.Struct):
    messages: list[Message]
    stream: bool = False
    stream_options: StreamOptions | None = None
    metadata: dict[str, str] | None = None

    def text(self) -> bytes:
        """As a chat template has it: a further turn begins with all of the one before it and its answer."""
        return "".join(f"<{message.role}>{message.content}" for message in self.messages).encode() + b"<assistant>"


def block_ids(text: bytes) -> tuple[int, ...]:
    """Of the full blocks, each over all before it."""
    size, last, found = BLOCK_TOKENS * TOKEN_BYTES, 0, []
    for start in range(0, len(text) - size + 1, size):
        last = xxh3_64_intdigest(text[start : start + size], last)
        found.append(last)
    return tuple(found)


def rendered(request: ChatRequest) -> dict[str, object]:
    """As vLLM shows what its chat template and tokenizer make of a request."""
    text = request.text()
    ids = [
        int.from_bytes(text[start : start + TOKEN_BYTES]) % VOCABULARY
        for start in range(0, len(text) - TOKEN_BYTES + 1, TOKEN_BYTES)
    ]
    return {"request_id": "chatcmpl-0123456789", "model": "bench", "token_ids": ids, "sampling_params": {}}


class RealTimeEngine:
    """The simulator's engine, whose events happen when they are due."""

    def __init__(self, timer: Timer, model: EngineModel, speed: float) -> None:
        self.server = EngineServer("engine", model, BLOCK_TOKENS, speed)
        self.counts = dict.fromkeys(("prompt", "generation", "queried", "hit"), 0)
        self._timer = timer
        self._events: list[tuple[float, int, Job]] = []
        self._numbers = count()
        self._ticking = False

    def submit(self, job: TokenJob) -> None:
        now = monotonic()
        self._catch_up(now)
        self.server.accept(job, now, self._schedule)
        if not self._ticking:
            self._ticking = True
            self._timer.at(now + TICK_SECONDS, self._tick)

    def abandon(self, job: TokenJob) -> None:
        now = monotonic()
        self._catch_up(now)
        self.server.abandon(job, now, self._schedule)

    def _schedule(self, when: float, job: Job) -> None:
        heappush(self._events, (when, next(self._numbers), job))
        self._timer.at(when, lambda: self._catch_up(monotonic()))

    def _catch_up(self, now: float) -> None:
        """An event happens at the time it was due, so delays of this process do not add up."""
        while self._events and self._events[0][0] <= now:
            when, _, job = heappop(self._events)
            if job.finish != when:
                continue  # planned anew since
            job.finish = -1.0
            if isinstance(job, TokenJob):
                job.context.refuse()
                continue
            self.server.ended(job, when, self._schedule)
            for started in self.server.take_started():
                started.context.first(when)
            for done in self.server.take_finished():
                self._count(done)
                done.context.finish(when)

    def _tick(self) -> None:
        now = monotonic()
        self._catch_up(now)
        for job, tokens in self.server.tokens_by(now):
            job.context.write_up_to(tokens)
        self._ticking = bool(self.server.busy or self.server.queue)
        if self._ticking:
            self._timer.at(now + TICK_SECONDS, self._tick)

    def _count(self, job: TokenJob) -> None:
        self.counts["prompt"] += job.prompt_tokens
        self.counts["queried"] += job.prompt_tokens
        self.counts["hit"] += job.cached_tokens
        self.counts["generation"] += job.output_tokens

    def metrics(self) -> str:
        model, server, counts = self.server.model, self.server, self.counts
        blocks = model.kv_tokens // KV_BLOCK_TOKENS
        values = {
            f'cache_config_info{{block_size="{KV_BLOCK_TOKENS}",num_gpu_blocks="{blocks}",engine="0"}}': 1,
            "num_requests_running": server.busy,
            "num_requests_waiting": len(server.queue),
            "kv_cache_usage_perc": server.kv.held / server.kv.capacity,
            "num_preemptions_total": server.preemptions,
            "prompt_tokens_total": counts["prompt"],
            "generation_tokens_total": counts["generation"],
            "prefix_cache_queries_total": counts["queried"],
            "prefix_cache_hits_total": counts["hit"],
        }
        labels = '{engine="0",model_name="bench"}'
        return "".join(f"vllm:{name}{'' if '{' in name else labels} {value}\n" for name, value in values.items())


class Answer:
    """Of one request, whole or as a stream; `late`: how far behind the model its first or last token was, at worst."""

    def __init__(self, connection: EngineConnection, request: ChatRequest, job: TokenJob, text: str) -> None:
        self.connection = connection
        self.job = job
        self.stream = request.stream
        self.usage = request.stream_options is not None and request.stream_options.include_usage
        self.text = text
        self.tokens = 0  # written
        self.late = 0.0
        if self.stream:
            connection.write(STREAM_HEAD)

    def first(self, when: float) -> None:
        self.late = monotonic() - when
        if self.stream:
            self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
            self.write_up_to(1)

    def write_up_to(self, tokens: int, reason: str | None = None) -> None:
        if not self.stream or (tokens <= self.tokens and reason is None):
            return
        content = self.text[self.tokens * TOKEN_BYTES : tokens * TOKEN_BYTES]
        self.tokens = tokens
        self._event({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": reason}]})

    def finish(self, when: float) -> None:
        self.late = max(self.late, monotonic() - when)
        self.connection.answer = None
        if self.stream:
            self.write_up_to(self.job.output_tokens, "stop")
            if self.usage:
                self._event({"choices": [], "usage": self._usage(), "system_fingerprint": self._fingerprint()})
            self.connection.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            return
        message = {"role": "assistant", "content": self.text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.connection.reply(msgspec.json.encode(self._object("chat.completion") | {
            "choices": [choice], "usage": self._usage(), "system_fingerprint": self._fingerprint(),
        }))  # fmt: skip

    def refuse(self) -> None:
        self.connection.answer = None
        if self.stream:
            self.connection.transport.abort()
        else:
            self.connection.reply(b'{"error": {"message": "longer than the context"}}', "400 Bad Request")

    def _usage(self) -> dict[str, object]:
        prompt, output = self.job.prompt_tokens, self.job.output_tokens
        cached = {"cached_tokens": self.job.cached_tokens}
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + output,
            "completion_tokens": output,
            "prompt_tokens_details": cached,
        }

    def _fingerprint(self) -> str:
        """A field of OpenAI's that every proxy passes on."""
        return f"port {self.connection.replica.port} late {round(self.late * 1e6)}"

    def _object(self, kind: str) -> dict[str, object]:
        return {"id": "chatcmpl-0123456789", "object": kind, "created": 1763200000, "model": "bench"}

    def _event(self, what: dict[str, object]) -> None:
        encoded = msgspec.json.encode(self._object("chat.completion.chunk") | what)
        self.connection.write(chunk(b"data: " + encoded + b"\n\n"))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class EngineReplica:
    def __init__(self, port: int, timer: Timer, kind: EngineKind) -> None:
        self.port = port
        self.timer = timer
        self.become(kind)

    def become(self, kind: EngineKind) -> None:
        """Whatever runs is forgotten."""
        self.timer.forget_all()
        self.engine = RealTimeEngine(self.timer, find_engine(kind.engine), kind.speed)

    def chat(self, connection: EngineConnection, request: ChatRequest) -> None:
        prompt = request.text()
        tokens = int((request.metadata or {}).get("answer_tokens", DEFAULT_ANSWER_TOKENS))
        text = shake_128(prompt).hexdigest(tokens * TOKEN_BYTES // 2)
        blocks = block_ids(prompt + text.encode())
        job = TokenJob(monotonic(), 0.0, len(prompt) // TOKEN_BYTES, tokens, blocks, BLOCK_TOKENS)
        job.context = connection.answer = Answer(connection, request, job, text)
        self.engine.submit(job)


class EngineConnection(ServerConnection):
    def __init__(self, replica: EngineReplica) -> None:
        super().__init__()
        self.replica = replica
        self.answer: Answer | None = None

    def on_message_complete(self) -> None:
        if self.parser.get_method() != b"GET":
            super().on_message_complete()
        elif self.url == b"/metrics":
            self.reply(self.replica.engine.metrics().encode(), content_type="text/plain; version=0.0.4")
        elif self.url in READS:
            self.reply(READS[self.url])
        else:
            self.reply(NOT_FOUND, "404 Not Found")

    def message(self, body: bytes) -> None:
        if self.url == CONTROL_PATH:
            self.replica.become(msgspec.json.decode(body, type=EngineKind))
            self.reply(b"{}")
            return
        if self.url not in (CHAT_PATH, RENDER_PATH):
            self.reply(NOT_FOUND, "404 Not Found")
            return
        try:
            request = msgspec.json.decode(body, type=ChatRequest)
            if self.url == RENDER_PATH:
                self.reply(msgspec.json.encode(rendered(request)))
            else:
                self.replica.chat(self, request)
        except msgspec.MsgspecError as problem:
            self.reply(msgspec.json.encode({"error": {"message": str(problem)}}), "400 Bad Request")

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        answer, self.answer = self.answer, None
        if answer is not None:
            self.replica.engine.abandon(answer.job)


async def serve(port: int, kind: EngineKind) -> None:
    loop = asyncio.get_running_loop()
    replica = EngineReplica(port, Timer(loop), kind)
    server = await loop.create_server(lambda: EngineConnection(replica), "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("port", type=int)
    parser.add_argument("--engine", default="8b-h100")
    parser.add_argument("--speed", type=float, default=1.0)
    options = parser.parse_args()
    uvloop.run(serve(options.port, EngineKind(options.engine, options.speed)))


if __name__ == "__main__":
    main()
