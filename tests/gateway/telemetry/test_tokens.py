"""Tokens of answers on their way through: counted for the model and the replica, and told to the balancer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from steelyard import Attempt, Outcome, Policy, Replica, Request
from steelyard.config import AccessLogConfig, DecisionLogConfig
from steelyard.control.history.slices import counts_by_verdict
from steelyard.core.prompt import Prompt, TokenUsage
from steelyard.documents import Share
from steelyard.gateway.telemetry.access_log import AccessLog
from steelyard.gateway.telemetry.decision_log import DecisionLog
from steelyard.gateway.telemetry.observers import Tracer
from steelyard.gateway.telemetry.otel import OtelSpan
from steelyard.gateway.telemetry.otlp_exporter import OtlpExporter
from steelyard.gateway.worker.worker_report import worker_report

from ..loop import Wire
from ..reading import answer, read_answer, request
from ..shared_balancer.wired import Wired
from ..stage import Stage

MODELS = "models: {m: {dialect: vllm, replicas: [{url: 'http://a:1'}]}}"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {"prompt_tokens": 40, "completion_tokens": 11, "prompt_tokens_details": {"cached_tokens": 32}}


class Listener(Policy):
    """Keeps what it is told."""

    needs_prompt = True
    told: ClassVar[list[Any]] = []

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        self.told.append(request.prompt)
        return candidates[0]

    def first_byte(self, attempt: Attempt, now: float) -> None:
        self.told.append(round(now - attempt.started, 6))

    def finished(self, attempt: Attempt, seconds: float, outcome: Outcome, now: float) -> None:
        usage = attempt.request.usage
        self.told.append((usage.prompt, usage.output, usage.cached) if usage is not None else None)


LISTENER = f"{__name__}:Listener"


@pytest.fixture(autouse=True)
def forget() -> None:
    Listener.told.clear()


def asks(stage: Stage, stream: bool, path: str = "/v1/chat/completions") -> tuple[Wire, Wire]:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": stream}
    client = stage.client()
    client.says(request(f"POST {path}", "content-type: application/json", body=json.dumps(body).encode()))
    return client, stage.replica()


def event(said: object) -> bytes:
    data = b"data: " + (said if isinstance(said, bytes) else json.dumps(said).encode()) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def word(content: str) -> bytes:
    return event({"model": "tiny", "choices": [{"index": 0, "delta": {"content": content}}]})


def stream(stage: Stage, replica: Wire, words: int, *, usage: bool) -> None:
    """The head at once, the first token after a second, one more each tenth of a second."""
    replica.says(STREAM)
    stage.pass_time(1.0)
    replica.says(word("a"))
    for _ in range(words - 1):
        stage.pass_time(0.1)
        replica.says(word("b"))
    if usage:
        replica.says(event({"choices": [], "usage": USAGE}))
    replica.says(event(b"[DONE]") + b"0\r\n\r\n")
    stage.loop.settle()


def test_an_answer_in_one_piece(staged: Callable[..., Stage]) -> None:
    stage = staged(MODELS)
    client, replica = asks(stage, False)
    replica.says(answer(body=json.dumps({"choices": [], "usage": USAGE}).encode()))
    assert read_answer(client.hears()).status == 200
    stats = stage.account("m")
    assert stats.tokens.counts() == {"prompt": 40, "cached": 32, "output": 11, "answers": 0, "further": 0}
    assert set(stats.durations()) == {"total", "replica", "first_byte", "queue"}, "none of tokens"


def test_a_stream_until_the_connection_ends_is_counted_however_it_is_cut(staged: Callable[..., Stage]) -> None:
    stage = staged(MODELS)
    _, replica = asks(stage, True)
    replica.says(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    for byte in b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n' * 3:
        replica.says(bytes([byte]))
    replica.ends()
    stage.loop.settle()
    assert stage.account("m").tokens.counts()["output"] == 3


def test_an_answer_in_several_pieces(staged: Callable[..., Stage]) -> None:
    stage = staged(MODELS)
    client, replica = asks(stage, False)
    whole = answer(body=json.dumps({"choices": [{"text": "x" * 20_000}], "usage": USAGE}).encode())
    for at in range(0, len(whole), 1500):
        replica.says(whole[at : at + 1500])
    assert read_answer(client.hears()).status == 200
    assert stage.account("m").tokens.counts()["output"] == 11


def test_a_stream_by_its_usage(staged: Callable[..., Stage]) -> None:
    stage = staged(MODELS)
    _, replica = asks(stage, True)
    stream(stage, replica, 11, usage=True)
    stats = stage.account("m")
    assert stats.tokens.counts() == {"prompt": 40, "cached": 32, "output": 11, "answers": 1, "further": 10}
    assert stats.tokens.seconds() == {"first_token": pytest.approx(1.0), "further": pytest.approx(1.0)}
    assert stats.per_token.total == pytest.approx(0.1)
    report = worker_report(stage.proxy, stage.loop.now, decides=True)
    (model,), (of_replica,) = report.models, report.replicas
    assert (model.tokens, of_replica.tokens) == (stats.tokens.counts(), stats.tokens.counts())
    assert of_replica.token_seconds == stats.tokens.seconds()
    assert {"first_token", "per_token"} < set(model.times)


def test_a_stream_without_usage_and_one_that_its_client_leaves(staged: Callable[..., Stage]) -> None:
    stage = staged(MODELS)
    _, replica = asks(stage, True)
    stream(stage, replica, 11, usage=False)
    assert stage.account("m").tokens.counts() == {"prompt": 0, "cached": 0, "output": 11, "answers": 1, "further": 10}
    client, replica = asks(stage, True)
    replica.says(STREAM + word("a") + word("b"))
    stage.loop.settle()
    client.breaks()
    stage.loop.settle()
    assert stage.account("m").tokens.output == 13
    assert stage.account("m").tokens.answers == 1


@pytest.mark.parametrize(
    ("slo", "words", "leaves", "verdict"),
    [
        ("first_byte: 2s, per_token: 150ms", 11, False, "met"),
        ("first_byte: 2s, per_token: 90ms", 11, False, "late/replica"),
        ("first_byte: 2s, per_token: 90ms", 1, False, "met"),
        ("first_byte: 500ms, per_token: 150ms", 11, False, "late/replica"),
        ("per_token: 150ms, latency: 1s", 11, False, "met"),
        ("per_token: 150ms", 2, True, "abandoned/client"),
        ("per_token: 50ms", 2, True, "late/replica"),
    ],
)
def test_two_promises_for_streams(
    staged: Callable[..., Stage], slo: str, words: int, leaves: bool, verdict: str
) -> None:
    stage = staged(MODELS.replace("dialect", f"slo: {{{slo}}}, dialect"))
    client, replica = asks(stage, True)
    if leaves:  # a tenth of a second after its second token, one after its first
        replica.says(STREAM + word("a"))
        stage.pass_time(0.1)
        replica.says(word("b"))
        stage.pass_time(0.1)
        client.breaks()
        stage.loop.settle()
    else:
        stream(stage, replica, words, usage=False)
    assert counts_by_verdict(stage.account("m").tenants[""].counts) == {verdict: 1}


def test_a_client_that_reads_slowly_makes_no_token_late(staged: Callable[..., Stage]) -> None:
    stage = staged(
        "limits: {connection_buffer_bytes: 1KiB}\n" + MODELS.replace("dialect", "slo: {per_token: 50ms}, dialect")
    )
    client, replica = asks(stage, True)
    client.stops_reading()
    replica.says(STREAM + word("a" * 5000) + word("b"))
    stage.pass_time(9.0)
    client.reads_on()
    replica.says(word("c") + event(b"[DONE]") + b"0\r\n\r\n")
    stage.loop.settle()
    assert counts_by_verdict(stage.account("m").tenants[""].counts) == {"met": 1}


def test_what_is_no_answer_of_an_engine_is_not_looked_at(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {dialect: http, replicas: [{url: 'http://a:1'}]}}")
    _, replica = asks(stage, False)
    replica.says(answer(body=json.dumps({"usage": USAGE}).encode()))
    stage.loop.settle()
    assert stage.account("m").tokens.counts() == {}


def test_an_error_has_no_tokens(staged: Callable[..., Stage]) -> None:
    stage = staged(MODELS)
    _, replica = asks(stage, True)
    replica.says(answer(json.dumps({"usage": USAGE}).encode(), status="400 Bad Request"))
    stage.loop.settle()
    assert stage.account("m").tokens.counts() == {}


def test_the_logs_tell_them(staged: Callable[..., Stage], tmp_path: Path) -> None:
    stage = staged(f"models: {{m: {{dialect: vllm, policy: '{LISTENER}', replicas: [{{url: 'http://a:1'}}]}}}}")
    recorder = stage.proxy.recorder
    recorder.log = AccessLog(AccessLogConfig(path=str(tmp_path / "access")), stage.loop.time)
    recorder.decisions = DecisionLog(
        DecisionLogConfig(path=str(tmp_path / "decisions"), sample_rate=Share(1.0)),
        stage.balancer,
        stage.config,
        clock=stage.loop.time,
    )
    recorder.decisions.attach()
    _, replica = asks(stage, True)
    stream(stage, replica, 11, usage=True)
    for log in (recorder.log, recorder.decisions):
        log.flush()
        log.close()
    line = json.loads((tmp_path / "access").read_text())
    assert (line["prompt_tokens"], line["output_tokens"], line["cached_tokens"]) == (40, 11, 32)
    line = json.loads((tmp_path / "decisions").read_text().splitlines()[-1])
    assert (line["prompt_tokens"], line["output_tokens"], line["cached_tokens"]) == (40, 11, 32)
    assert line["prompt_bytes"] == len('[{"role": "user", "content": "Hello"}]')


class Traced(Tracer):
    """All requests; keeps their spans."""

    sample = 1.0

    def __init__(self) -> None:
        self.spans: list[bytes] = []

    def begin(self, exchange: Any) -> None:
        exchange.observers = (OtelSpan(cast(OtlpExporter, self), exchange, b""),)

    def add(self, span: bytes) -> None:
        self.spans.append(span)


@pytest.mark.parametrize("stream_it", [True, False])
def test_the_span_of_the_attempt_tells_them(staged: Callable[..., Stage], stream_it: bool) -> None:
    stage = staged(MODELS)
    tracer = Traced()
    stage.proxy.recorder.set_tracer(tracer)
    _, replica = asks(stage, stream_it)
    if stream_it:
        stream(stage, replica, 11, usage=True)
    else:
        replica.says(answer(body=json.dumps({"model": "tiny", "usage": USAGE}).encode()))
        stage.loop.settle()
    spans = [Span.FromString(span) for span in tracer.spans]
    (attempt,) = [span for span in spans if span.name == "replica"]
    said = {pair.key: pair.value.string_value or pair.value.int_value for pair in attempt.attributes}
    assert {name: value for name, value in said.items() if name.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "tiny",
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.usage.cache_read.input_tokens": 32,
    }


# ---------------------------------------------------------------------- the balancer


def test_the_policy_hears_of_prompt_and_usage(staged: Callable[..., Stage]) -> None:
    stage = staged(f"models: {{m: {{dialect: vllm, policy: '{LISTENER}', replicas: [{{url: 'http://a:1'}}]}}}}")
    _, replica = asks(stage, True)
    stream(stage, replica, 11, usage=True)
    prompt, first_byte, usage = Listener.told
    assert isinstance(prompt, Prompt)
    assert first_byte == 1.0, "not its head, which came at once"
    assert usage == (40, 11, 32)


def test_a_stream_that_may_be_hedged_begins_with_its_first_byte_too(staged: Callable[..., Stage]) -> None:
    model = f"{{dialect: vllm, policy: '{LISTENER}', hedge: {{enabled: true}}, replicas: [{{url: 'http://a:1'}}]}}"
    stage = staged(f"models: {{m: {model}}}")
    _, replica = asks(stage, True)
    stream(stage, replica, 2, usage=False)
    assert Listener.told[1:] == [1.0, (0, 2, 0)]


def test_a_balancer_process_hears_of_them_too() -> None:
    stage = Wired(ids=["a"], policy=LISTENER)
    (one, _) = stage.workers
    sent = one.submit(prompt=Prompt(5000, (1, 2**64 - 1), 7.5))
    stage.settle()
    stage.now += 0.5
    one.carry_out(one.client.response_started(sent, one.running[0][1], stage.now))
    stage.settle()
    sent.usage = TokenUsage(40, 11, 32)
    one.finish(*one.running[0])
    stage.settle()
    prompt, first_byte, usage = Listener.told
    assert first_byte == 0.5
    assert (prompt.text_bytes, prompt.blocks, prompt.extra_tokens) == (5000, (1, 2**64 - 1), 7.5)
    assert usage == (40, 11, 32)
