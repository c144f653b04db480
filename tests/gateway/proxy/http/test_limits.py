"""What a client may ask of the gateway at most; and that asking for more costs others nothing."""

import sys
from collections.abc import Callable

import pytest

from steelyard.gateway.proxy.client_connection import MAX_LINGER_BYTES

from ...reading import answer, chunked, read_answer, read_request, request
from ...stage import Stage

MODEL = "models: {m: {concurrency: 1, max_queue: 2, replicas: [{url: 'http://a:1'}]}}"


def limited(staged: Callable[..., Stage], limits: str) -> Stage:
    return staged(f"{{limits: {{{limits}}}, {MODEL}}}")


def refused(stage: Stage, data: bytes, status: int, reason: str) -> None:
    client = stage.client()
    client.says(data)
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"], response["connection"]) == (status, reason, "close")
    assert client.transport.eof_heard
    client.says(b"more " * 100)
    assert client.hears() == b""
    stage.pass_time(3)
    assert client.closed
    assert stage.dialling == []
    stage.check_idle(counted=1)


@pytest.mark.parametrize(
    "data",
    [
        request("GET /", "x: " + "a" * 1000),
        request("GET /" + "a" * 1000),
        b"GET / HTTP/1.1\r\nx: " + b"a" * 1000,
        b"a" * 1001,
    ],
)
def test_heads_that_are_too_large(staged: Callable[..., Stage], data: bytes) -> None:
    refused(limited(staged, "header_bytes: 500"), data, 431, "head_too_large")


def test_too_many_headers(staged: Callable[..., Stage]) -> None:
    stage = limited(staged, "header_count: 10")
    client = stage.client()
    client.says(request("GET /", *[f"x-{n}: 1" for n in range(9)]))
    stage.replica().says(answer())
    assert read_answer(client.hears()).status == 200
    client.ends()
    stage = limited(staged, "header_count: 10")
    refused(stage, request("GET /", *[f"x-{n}: 1" for n in range(10)]), 431, "head_too_large")


def test_a_head_that_is_too_large_however_it_comes(staged: Callable[..., Stage]) -> None:
    stage = limited(staged, "header_bytes: 500")
    client = stage.client()
    for byte in request("GET /", "x: " + "a" * 1000):
        if client.transport.eof_heard:
            break
        client.says(bytes([byte]))
    assert read_answer(client.hears()).status == 431
    stage.check_idle(counted=1)


@pytest.mark.parametrize(
    "data",
    [
        request("POST /", "content-length: 101"),
        request("POST /", body=b"x" * 101),
        request("POST /", "transfer-encoding: chunked") + chunked(b"x" * 50, b"x" * 51),
        request("POST /", "transfer-encoding: chunked") + b"fffffff\r\n" + b"x" * 101,
    ],
)
def test_bodies_that_are_too_large(staged: Callable[..., Stage], data: bytes) -> None:
    refused(limited(staged, "body_bytes: 100"), data, 413, "body_too_large")


def test_a_body_that_becomes_too_large_on_its_way(staged: Callable[..., Stage]) -> None:
    stage = limited(staged, "body_bytes: 100, replay_bytes: 10")
    client = stage.client()
    client.says(request("POST /", "transfer-encoding: chunked") + b"32\r\n" + b"x" * 50 + b"\r\n")
    replica = stage.replica()
    client.says(b"33\r\n" + b"x" * 51 + b"\r\n")
    assert read_answer(client.hears()).status == 413
    assert replica.closed
    assert not read_request(replica.hears()).whole
    stage.check_idle(counted=1)


def test_connections(staged: Callable[..., Stage]) -> None:
    stage = limited(staged, "connections: 2")
    first, second, third = (stage.client() for _ in range(3))
    assert read_answer(third.hears())["steelyard-reason"] == "too_many_connections"
    assert third.closed
    assert not first.closed
    first.breaks()
    fourth = stage.client()
    assert fourth.hears() == b""
    fourth.says(request())
    stage.replica().says(answer(b"ok"))
    assert read_answer(fourth.hears()).body == b"ok"
    second.breaks()
    stage.check_idle(counted=1)


def test_bodies_held_together(staged: Callable[..., Stage]) -> None:
    stage = limited(staged, "total_buffer_bytes: 1000")
    clients = [stage.client() for _ in range(3)]
    for client in clients:
        client.says(request("POST /", "content-length: 500"))
        client.says(b"x" * 400)
    assert [read_answer(client.hears()).status for client in clients[2:]] == [503]
    assert stage.proxy.held == 800
    clients[0].says(b"x" * 100)
    replica = stage.replica()
    replica.says(answer())
    assert stage.proxy.held == 400
    clients[1].breaks()
    stage.check_idle(counted=3)


def test_bodies_held_in_line(staged: Callable[..., Stage]) -> None:
    stage = limited(staged, "total_buffer_bytes: 1000")
    clients = [stage.client() for _ in range(3)]
    for client in clients:
        client.says(request("POST /", body=b"x" * 600))
    assert stage.proxy.held == 600, "the second waits; the first was sent on, and may be sent again"
    response = read_answer(clients[2].hears())
    assert (response.status, response["steelyard-reason"]) == (503, "buffers_full")
    assert "retry-after" in response
    stage.replica().says(answer(b"1"))
    stage.replica().says(answer(b"2"))
    assert read_answer(clients[1].hears()).body == b"2"
    stage.check_idle(counted=3)


def test_requests_in_line(staged: Callable[..., Stage]) -> None:
    stage = limited(staged, "body_bytes: 100")
    clients = [stage.client() for _ in range(4)]
    for client in clients:
        client.says(request())
    response = read_answer(clients[3].hears())
    assert (response.status, response["steelyard-reason"]) == (503, "queue_full")
    assert int(response["retry-after"]) >= 1
    for number in range(3):
        stage.replica().says(answer(b"%d" % number))
        assert read_answer(clients[number].hears()).body == b"%d" % number
    stage.check_idle(counted=4)


def test_connections_kept_to_a_replica(staged: Callable[..., Stage]) -> None:
    stage = staged("{limits: {idle_connections_per_replica: 2}, models: {m: {replicas: [{url: 'http://a:1'}]}}}")
    clients = [stage.client() for _ in range(4)]
    for client in clients:
        client.says(request())
    wires = [stage.accept() for _ in range(4)]
    for wire in wires:
        wire.says(answer())
    assert sum(wire.closed for wire in wires) == 2
    stage.check_idle(counted=4)


def test_what_comes_after_a_refusal_is_not_read_for_ever(staged: Callable[..., Stage]) -> None:
    stage = limited(staged, "body_bytes: 100")
    client = stage.client()
    client.says(request("POST /", "content-length: 1000000000"))
    for _ in range(2 * MAX_LINGER_BYTES >> 16):
        if client.closed:
            break
        client.says(b"x" * (1 << 16))
    assert client.closed
    assert client.hears()


@pytest.mark.parametrize(
    ("data", "most"),
    [
        (b"\r\n" * (1 << 17), 1000),
        (request("GET /", "connection: " + "a," * 30_000, *[f"x-{n}: 1" for n in range(90)]), 100_000),
        (request("GET /", *["connection: " + "a," * 300] * 90), 200_000),
        (request("POST /", "transfer-encoding: chunked") + b"1\r\na\r\n" * 10_000 + b"0\r\n\r\n", 200_000),
    ],
)
def test_no_few_bytes_keep_the_gateway_busy(stage: Stage, data: bytes, most: int) -> None:
    """Measured in calls, not in time: what is done grows with the bytes, not with their square."""
    client = stage.client()
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        client.transport.protocol.data_received(data)
    finally:
        sys.setprofile(None)
    assert calls < most


@pytest.mark.interpreted("replaces a method of a compiled object")
@pytest.mark.parametrize("begun", [True, False])
def test_no_memory_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    def out_of_memory(*_: object) -> None:
        raise MemoryError

    client = stage.client()
    monkeypatch.setattr(stage.proxy.intake, "submit" if begun else "prepare", out_of_memory)
    client.says(request("POST /", body=b"x"))
    assert read_answer(client.hears())["steelyard-reason"] == "memory_low"
    monkeypatch.undo()
    stage.check_idle(counted=1)
