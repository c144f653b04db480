"""The client leaves: in every phase its replica is told, its slot is free, nothing is left."""

from collections.abc import Callable

import pytest

from ...loop import Wire
from ...reading import answer, read_answer, request
from ...stage import Stage

ONE_AT_A_TIME = "{limits: {replay_bytes: 100}, models: {m: {concurrency: 1, replicas: [{url: 'http://a:1'}]}}}"
UPGRADE = ("connection: upgrade", "upgrade: websocket")


def leave(client: Wire, how: str) -> None:
    (client.ends if how == "ends" else client.breaks)()
    assert client.closed


@pytest.fixture(params=["ends", "breaks"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HT",
        request("POST /", "content-length: 10") + b"hello",
        request("POST /", "transfer-encoding: chunked") + b"5\r\nhel",
        request("POST /", "expect: 100-continue", "content-length: 10"),
    ],
)
def test_before_the_request_is_there(stage: Stage, how: str, said: bytes) -> None:
    client = stage.client()
    if said:
        client.says(said)
    leave(client, how)
    assert not stage.proxy.clients
    assert not stage.proxy.partial_heads
    stage.check_idle(counted=int(said.startswith(b"POST")))


def test_while_it_waits(staged: Callable[..., Stage], how: str) -> None:
    stage = staged(ONE_AT_A_TIME)
    first, second, third = (stage.client() for _ in range(3))
    for client in (first, second, third):
        client.says(request("POST /", body=b"x"))
    leave(second, how)
    assert stage.account("m").cancelled == 1
    busy = stage.replica()
    busy.says(answer(b"1"))
    stage.replica().says(answer(b"3"))
    assert read_answer(third.hears()).body == b"3"
    stage.check_idle(counted=3)


def test_while_the_connection_is_made(stage: Stage, how: str) -> None:
    client = stage.client()
    client.says(request())
    dial = stage.dial()
    leave(client, how)
    assert stage.balancer.pool("*").active == 0
    wire = dial.accept()
    assert wire.hears() == b""
    other = stage.client()
    other.says(request("GET /2"))
    assert stage.dialling == [], "the connection is there, and nobody has used it"
    stage.replica().says(answer(b"2"))
    assert read_answer(other.hears()).body == b"2"
    stage.check_idle(counted=2)


def test_while_the_connection_fails(stage: Stage, how: str) -> None:
    client = stage.client()
    client.says(request())
    dial = stage.dial()
    leave(client, how)
    dial.fail()
    stage.check_idle(counted=1)


@pytest.mark.parametrize(
    "said",
    [
        [],
        [b"HTTP/1.1 2"],
        [b"HTTP/1.1 103 Early\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhel"],
        [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"5\r\nhe"],
        [b"HTTP/1.1 200 OK\r\n\r\nhello"],
        [b"HTTP/1.1 404 Not Found\r\ncontent-length: 10\r\n\r\nhel"],
        [b"HTTP/1.1 500 Broken\r\ncontent-length: 10\r\n\r\nhel"],
    ],
)
def test_while_it_runs(stage: Stage, how: str, said: list[bytes]) -> None:
    client = stage.client()
    client.says(request("POST /", body=b"x"))
    replica = stage.replica()
    replica.says(*said)
    leave(client, how)
    assert replica.closed, "how else would the replica know?"
    assert stage.account().cancelled == 1
    (only,) = stage.balancer.pool("*").replicas.values()
    assert only.failed == int(bool(said) and b" 500 " in said[0])
    stage.check_idle(counted=1)


def test_while_its_body_streams(staged: Callable[..., Stage], how: str) -> None:
    stage = staged(ONE_AT_A_TIME)
    client = stage.client()
    client.says(request("POST /", "content-length: 1000") + b"x" * 500)
    replica = stage.replica()
    client.says(b"x" * 100)
    leave(client, how)
    assert replica.closed
    stage.check_idle(counted=1)


def test_while_its_body_streams_to_a_replica_that_does_not_read(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE_AT_A_TIME.replace("replay_bytes: 100", "replay_bytes: 100, connection_buffer_bytes: 100"))
    client = stage.client()
    client.says(request("POST /", "content-length: 1000") + b"x" * 200)
    replica = stage.replica()
    replica.stops_reading()
    client.says(b"x" * 200)
    assert client.transport.paused
    client.breaks()
    assert replica.closed
    stage.check_idle(counted=1)


def test_who_leaves_does_not_free_a_slot_twice(staged: Callable[..., Stage], how: str) -> None:
    stage = staged(ONE_AT_A_TIME)
    clients = [stage.client() for _ in range(4)]
    for number, client in enumerate(clients):
        client.says(request(f"GET /{number}"))
    (replica,) = stage.balancer.pool("m").replicas.values()
    for number in range(4):
        assert replica.in_flight == 1
        wire = stage.replica()
        assert f"GET /{number} ".encode() in wire.hears()
        if number % 2:
            wire.says(answer(b"ok"))
        else:
            leave(clients[number], how)
    stage.check_idle(counted=4)
    assert stage.account("m").outcomes() == {"ok": 2, "cancelled": 2, "client_error": 0, "failed": 0, "refused": 0}


def test_with_more_requests_in_the_pipeline(stage: Stage, how: str) -> None:
    client = stage.client()
    client.says(request("GET /1") + request("GET /2"))
    leave(client, how)
    assert stage.dialling == [] or stage.dial().accept().hears() == b""
    stage.check_idle(counted=1)


def test_who_left_gets_no_answer_of_the_next(stage: Stage) -> None:
    gone = stage.client()
    gone.says(request("GET /secret"))
    first = stage.replica()
    gone.breaks()
    other = stage.client()
    other.says(request("GET /other"))
    second = stage.replica()
    assert second is not first
    second.says(answer(b"other"))
    assert read_answer(other.hears()).body == b"other"
    assert gone.hears() == b""
    stage.check_idle(counted=2)
