"""The engine arena: its mock engine says what the model says, in vLLM's words, and late runs do not count."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

import pytest
from benchmarks.load.conversation_load import NUMBERS_PATTERN, Dialogue, Outcome, StreamTimes
from benchmarks.mocks import engine_replica
from benchmarks.mocks.engine_replica import ChatRequest, EngineConnection, EngineKind, EngineReplica
from benchmarks.scores.arena import MAX_LAG_SECONDS
from benchmarks.scores.engine_arena import OURS, EngineScores, Run

from steelyard.protocols.load import read_metrics
from steelyard.simulate.llm.conversations import Conversation
from steelyard.simulate.llm.model import ENGINES

H100 = ENGINES["8b-h100"]
PROMPT = "".join(f"{number:04}" for number in range(500))  # 500 tokens


class Transport(asyncio.Transport):
    """Keeps what is written, with the time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.writes: list[tuple[float, bytes]] = []

    def write(self, data: Any) -> None:
        self.writes.append((self.clock.now, bytes(data)))

    def is_closing(self) -> bool:
        return False

    @property
    def text(self) -> bytes:
        return b"".join(data for _, data in self.writes)

    def when(self, text: bytes) -> float:
        return next(at for at, data in self.writes if text in data)


class Clock:
    """A timer and its clock, which goes as far as it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when: float, call: Callable[[], None]) -> None:
        heappush(self._heap, (when, next(self._order), call))

    def forget_all(self) -> None:
        self._heap.clear()

    def run(self) -> None:
        while self._heap:
            when, _, call = heappop(self._heap)
            self.now = max(self.now, when)
            call()


class Stage:
    def __init__(self) -> None:
        self.clock = Clock()
        self.replica = EngineReplica(8000, self.clock, EngineKind())  # type: ignore[arg-type]

    def ask(self, path: str, body: object = None) -> Transport:
        transport = Transport(self.clock)
        connection = self.connection = EngineConnection(self.replica)
        connection.connection_made(transport)
        text = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        connection.data_received(f"{method} {path} HTTP/1.1\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text)
        return transport

    def chat(self, *contents: str, tokens: int = 10, stream: bool = True) -> Transport:
        roles = ("user", "assistant")
        messages = [{"role": roles[n % 2], "content": content} for n, content in enumerate(contents)]
        more = {"stream": stream, "stream_options": {"include_usage": True}, "metadata": {"answer_tokens": str(tokens)}}
        return self.ask("/v1/chat/completions", {"model": "bench", "messages": messages, **more})


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()
    monkeypatch.setattr(engine_replica, "monotonic", lambda: stage.clock.now)
    return stage


def counted(text: bytes) -> dict[bytes, int]:
    return {name: int(number) for name, number, _, _ in NUMBERS_PATTERN.findall(text) if name}


def test_a_stream_comes_when_the_model_says(stage: Stage) -> None:
    answer = stage.chat(PROMPT)
    stage.clock.run()
    usage = counted(answer.text)
    prompt = usage[b"prompt_tokens"]
    assert answer.when(b"HTTP/1.1 200") == 0.0  # the head at once, as vLLM does
    first = H100.step_base + H100.per_prefill_token * prompt
    assert answer.when(b'"assistant"') == pytest.approx(first)
    assert answer.when(b"[DONE]") == pytest.approx(H100.seconds_alone(prompt, 10))
    assert usage[b"completion_tokens"] == 10
    assert usage[b"cached_tokens"] == 0


def test_a_further_turn_finds_the_one_before_it_in_the_cache(stage: Stage) -> None:
    first = stage.chat(PROMPT, tokens=100, stream=False)
    stage.clock.run()
    body = json.loads(first.text.partition(b"\r\n\r\n")[2])
    said = body["choices"][0]["message"]["content"]
    second = stage.chat(PROMPT, said, "and then?")
    stage.clock.run()
    assert counted(second.text)[b"cached_tokens"] >= body["usage"]["total_tokens"] - 2 * engine_replica.BLOCK_TOKENS
    other = stage.chat("x" + PROMPT)
    stage.clock.run()
    assert counted(other.text)[b"cached_tokens"] == 0


def test_what_a_router_asks_beside_is_no_generation(stage: Stage) -> None:
    """It was, and the router that asks for the tokens of each prompt looked as if it took twice as long."""
    prompt = {"model": "bench", "messages": [{"role": "user", "content": PROMPT}]}
    rendered = stage.ask("/v1/chat/completions/render", prompt)
    assert len(json.loads(rendered.text.partition(b"\r\n\r\n")[2])["token_ids"]) == pytest.approx(500, abs=10)
    assert stage.ask("/tokenize", prompt).text.startswith(b"HTTP/1.1 404")
    assert stage.ask("/get_server_info").text.startswith(b"HTTP/1.1 404")
    assert stage.replica.engine.server.busy == 0


def test_its_metrics_are_read_as_vllms(stage: Stage) -> None:
    stage.chat(PROMPT)
    load = read_metrics(stage.ask("/metrics").text)
    assert load is not None
    assert (load.running, load.waiting, load.kv_tokens) == (1, 0, H100.kv_tokens)


def test_a_client_that_hangs_up_frees_the_engine(stage: Stage) -> None:
    stage.chat(PROMPT, tokens=1000)
    stage.connection.connection_lost(None)
    stage.clock.run()
    assert stage.replica.engine.server.busy == 0
    assert stage.clock.now < 1.0


def test_a_dialogue_is_as_long_as_the_conversation_says() -> None:
    dialogue = Dialogue(Conversation(1, 0, 300, [(1000, 20, 1.0)]), seed=1)
    dialogue.ask(1000)
    assert len(ChatRequest(dialogue.messages).text()) // engine_replica.TOKEN_BYTES == pytest.approx(1000, abs=5)
    assert dialogue.messages[0].content == Dialogue(Conversation(2, 0, 300, []), seed=2).messages[0].content


def run(first: float, lag: float = 0.0) -> Run:
    return Run.of(Outcome([StreamTimes(5.0, first, 0.05, 100, 30)], lags=[lag]), warmup=1.0)


def test_late_runs_do_not_count_and_the_goal_is_against_the_best_other() -> None:
    scores = EngineScores(["nginx", "haproxy", OURS], ["smg-cache-aware"])
    for name, each in (("nginx", run(1.0)), ("haproxy", run(0.1, lag=2 * MAX_LAG_SECONDS)), (OURS, run(0.8))):
        scores.add("chat", name, each)
    rows = {row[0]: row[1] for row in scores.rows("chat")}
    assert rows == {
        "nginx": "1.000 s",
        "haproxy": "benchmark late",
        f"**{OURS}**": "0.800 s",
        "smg-cache-aware": "not installed",
    }
    even, uneven = scores.verdicts("chat", uneven=False), scores.verdicts("chat", uneven=True)
    assert even[1].startswith("✓ chat: TTFT p99 of steelyard-vllm ÷ nginx's: 0.80")
    assert uneven[1].startswith("✗")
