"""A demo replica as a process, through its socket."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import httpx
import numpy as np
import pytest
import uvloop

from steelyard.control.errors import StartError
from steelyard.demo import replica_processes
from steelyard.demo.replica import endpoints
from steelyard.demo.replica.endpoints import Endpoints
from steelyard.demo.replica.model import Embedder, Matrix
from steelyard.demo.replica_processes import ReplicaProcess, ReplicaProcesses, replica_arguments, running_replicas
from tests.harness.processes import descendants

HEALTH = b"GET /health HTTP/1.1\r\n\r\n"
NEVER_SECONDS = 1000.0  # never, for a test


@contextmanager
def running(**slowdowns: float) -> Iterator[list[ReplicaProcess]]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        context = running_replicas(slowdowns)
        yield runner.run(_enter(context))
        runner.run(_leave(context))


async def _enter(context: Any) -> list[ReplicaProcess]:
    found: ReplicaProcesses = await context.__aenter__()
    return list(found.values())


async def _leave(context: Any) -> None:
    await context.__aexit__(None, None, None)


@pytest.fixture(scope="module")
def replica() -> Iterator[ReplicaProcess]:
    with running(one=1) as (only,):
        yield only


@pytest.fixture
def connection(replica: ReplicaProcess) -> Iterator[HTTPConnection]:
    made = HTTPConnection("127.0.0.1", replica.port, timeout=30)
    yield made
    made.close()


def embed(connection: HTTPConnection, **fields: Any) -> tuple[int, Any]:
    connection.request("POST", "/v1/embeddings", json.dumps(fields))
    answer = connection.getresponse()
    return answer.status, json.load(answer)


def exchange(port: int, sent: bytes) -> bytes:
    """Everything that comes back until the replica closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        raw.sendall(sent)
        return b"".join(iter(lambda: raw.recv(65536), b""))


class Clock:
    """In place of the module `time`."""

    def __init__(self) -> None:
        self.now = self.computed = self.slept = 0.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.computed

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds


class BusyModel:
    """Computes for a second, and waits for a core besides."""

    def __init__(self, clock: Clock, waited: float) -> None:
        self._clock = clock
        self._waited = waited

    def tokenize(self, text: str) -> list[int]:
        return [len(text)]

    def embed(self, numbers: list[list[int]]) -> Matrix:
        self._clock.computed += 1.0
        self._clock.now += 1.0 + self._waited
        return np.ones((len(numbers), 2), np.float32)


# ---------------------------------------------------------------------- the dialect


def test_one_text_or_many(connection: HTTPConnection) -> None:
    status, one = embed(connection, model="minilm", input="rain and wind tonight")
    assert status == 200
    assert (one["object"], one["model"], one["usage"]["total_tokens"]) == ("list", "minilm", 6)
    status, many = embed(connection, model="minilm", input=["bake the bread", "rain and wind tonight"])
    assert [row["index"] for row in many["data"]] == [0, 1]
    assert many["data"][1]["embedding"] == one["data"][0]["embedding"]
    model = Embedder()
    wanted = model.embed([model.tokenize("rain and wind tonight")])[0]
    np.testing.assert_allclose(one["data"][0]["embedding"], wanted, atol=1e-3)


def test_base64_as_the_openai_client_wants_it(connection: HTTPConnection) -> None:
    _, plain = embed(connection, model="minilm", input="a cake with honey")
    _, packed = embed(connection, model="minilm", input="a cake with honey", encoding_format="base64")
    row = np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(row, plain["data"][0]["embedding"], atol=1e-3)


def test_what_it_is(connection: HTTPConnection) -> None:
    for path, content in {"/health": "ok", "/v1/models": "minilm"}.items():
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        assert content in answer.read().decode()


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"model": "gpt", "input": "x"}, 404, "There is no model 'gpt' here"),
        ({"model": "minilm"}, 400, "missing required field `input`"),
        ({"model": "minilm", "input": []}, 400, "input has 0 texts"),
        ({"model": "minilm", "input": [[1, 2]]}, 400, "Expected `str`"),
        ({"model": "minilm", "input": ["x"] * 2049}, 400, "input has 2049 texts"),
        ({"model": "minilm", "input": ["x " * 300] * 17}, 400, "input has 4352 tokens"),
    ],
)
def test_what_it_cannot_do_is_told_as_openai_tells_it(
    connection: HTTPConnection, fields: dict[str, Any], status: int, message: str
) -> None:
    assert embed(connection, **fields)[0] == status
    _, body = embed(connection, **fields)  # the connection is still good
    assert message in body["error"]["message"]
    assert body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/embeddings", None, 405),
        ("POST", "/v1/nothing", "{}", 404),
        ("POST", "/slowdown", '{"slowdown": 0.5}', 400),
        ("GET", "/slowdown", None, 405),
        ("GET", "/?x=1", None, 404),
        ("POST", "/v1/embeddings", "no json", 400),
        ("POST", "/v1/embeddings", "x" * (1 << 20) + "x", 413),
    ],
)
def test_other_requests(connection: HTTPConnection, method: str, path: str, body: str | None, status: int) -> None:
    connection.request(method, path, body)
    answer: HTTPResponse = connection.getresponse()
    assert answer.status == status
    assert json.load(answer)["error"]["message"]


# ---------------------------------------------------------------------- the wire


def test_pipelined_requests_are_answered_in_order(replica: ReplicaProcess) -> None:
    texts = ["rain", "a cake with honey", "the bank"]
    sent = b""
    for text in texts:
        body = json.dumps({"input": text}).encode()
        sent += b"POST /v1/embeddings HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body) + HEALTH * 12
    said = exchange(replica.port, sent + b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert said.count(b"HTTP/1.1 200 OK") == 40
    assert [part[:5] for part in said.split(b"total_tokens")[1:]] == [b'":3}}', b'":6}}', b'":4}}']
    assert said.split(b"total_tokens")[0].count(b'"ok"') == 0


def test_a_body_in_chunks(replica: ReplicaProcess) -> None:
    head = b"POST /v1/embeddings HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    said = exchange(replica.port, head + b'b\r\n{"input": "\r\n8\r\na cake"}\r\n0\r\n\r\n')
    assert b'"total_tokens":4' in said


def test_a_client_that_leaves_does_no_harm(replica: ReplicaProcess, connection: HTTPConnection) -> None:
    body = json.dumps({"input": ["rain and wind"] * 100}).encode()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", replica.port)) as raw:
            raw.sendall(b"POST /v1/embeddings HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    assert embed(connection, input="rain")[0] == 200


# ---------------------------------------------------------------------- start and speed


def test_one_that_does_not_start_takes_the_others_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(descendants(os.getpid()))
    commands = iter(
        [
            replica_processes.tied_command("steelyard.demo.replica"),
            (sys.executable, "-c", "raise SystemExit(3)"),
        ]
    )
    monkeypatch.setattr(replica_processes, "tied_command", lambda module: next(commands))
    ended = pytest.raises(StartError, match="replica broken ended with exit code 3 before it was ready")
    with ended, running(good=1, broken=1):
        pass
    assert set(descendants(os.getpid())) <= before


def test_why_one_cannot_start_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    refused = pytest.raises(StartError, match=r"^replica one cannot start: OSError: .*Address already in use")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(replica_processes, "replica_arguments", lambda _, *rest: replica_arguments(port, *rest))
        with refused, running(one=1):
            pass
    assert capfd.readouterr() == ("", "")


def test_a_killed_one_comes_back_on_its_port_and_loads_first() -> None:
    async def work() -> None:
        async with running_replicas({"one": 1.0}) as fleet:
            before = fleet["one"]
            fleet.kill("one")
            with pytest.raises(httpx.TransportError):  # refused, or reset
                await before.ask("GET", "/health")
            await fleet.restart("one", loading=NEVER_SECONDS)
            after = fleet["one"]
            assert (after.port, after.pid != before.pid) == (before.port, True)
            reply = await after.ask("POST", "/v1/embeddings", b'{"input": "rain"}')
            assert (reply.status_code, b"is being loaded" in reply.content) == (503, True)
            health = (await after.ask("GET", "/health")).json()
            assert (health["status"], health["early_requests"]) == ("loading", 1)
            fleet.kill("one")
            await fleet.restart("one", loading=0.1)
            while (await fleet["one"].ask("GET", "/health")).status_code != 200:
                await asyncio.sleep(0.05)
            assert (await fleet["one"].ask("POST", "/v1/embeddings", b'{"input": "rain"}')).status_code == 200

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work(), 120))


@pytest.mark.parametrize(("waited", "slept", "late"), [(0.0, 1.0, 0.0), (0.25, 0.75, 0.0), (3.0, 0.0, 2.0)])
def test_a_wait_for_a_core_is_part_of_the_pace(
    monkeypatch: pytest.MonkeyPatch, waited: float, slept: float, late: float
) -> None:
    """So a busy machine changes little, and what it changes is told."""
    clock = Clock()
    monkeypatch.setattr(endpoints, "time", clock)
    asked = Endpoints(BusyModel(clock, waited), slowdown=2.0)  # type: ignore[arg-type]
    assert asked.answer("POST", "/v1/embeddings", b'{"input": "rain"}')[0] == 200
    assert clock.slept == slept
    health = json.loads(asked.answer("GET", "/health", b"")[1])
    assert (health["expected_seconds"], health["overrun_seconds"]) == (2.0, late)


def test_its_slowdown_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(endpoints, "time", clock)
    asked = Endpoints(BusyModel(clock, 0.0))  # type: ignore[arg-type]

    async def ask(replica: ReplicaProcess, method: str, path: str, body: bytes) -> None:
        assert asked.answer(method, path, body)[0] == 200

    monkeypatch.setattr(ReplicaProcess, "ask", ask)
    asyncio.run(ReplicaProcess("one", 1.0, 1, 1).set_slowdown(3.0))
    assert asked.answer("POST", "/v1/embeddings", b'{"input": "rain"}')[0] == 200
    assert clock.slept == 2.0


def test_a_slower_replica_gives_the_same_answers() -> None:
    with running(fast=1, slow=3) as (fast, slow):
        asyncio.run(fast.set_slowdown(2.0))
        answers = []
        for replica in (fast, slow):
            made = HTTPConnection("127.0.0.1", replica.port, timeout=30)
            answers.append(embed(made, input=["rain", "a song"]))
            made.close()
    assert answers[0] == answers[1]
