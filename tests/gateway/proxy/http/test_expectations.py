"""Expect: 100-continue, upgrades and tunnels, and clients of HTTP/1.0."""

from collections.abc import Callable

import pytest

from ...reading import answer, chunked, read_answer, read_answers, read_request, request
from ...stage import Stage

UPGRADE = request("GET /ws", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x")
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"


@pytest.mark.parametrize("framing", ["content-length: 5", "transfer-encoding: chunked"])
def test_a_client_that_asks_first_is_told_to_go_on(stage: Stage, framing: str) -> None:
    client = stage.client()
    client.says(request("POST /", "Expect: 100-Continue", framing))
    assert client.hears() == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.says(chunked(b"hello") if "chunked" in framing else b"hello")
    heard = read_request(stage.replica().hears())
    assert heard.body == b"hello"
    assert "expect" not in heard
    stage.replica().says(answer())
    stage.check_idle(counted=1)


def test_who_sent_the_body_already_is_not_told_to_go_on(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /", "expect: 100-continue", body=b"hello"))
    assert client.hears() == b""


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(staged: Callable[..., Stage]) -> None:
    stage = staged("{limits: {body_bytes: 10}, models: {'*': {replicas: [{url: 'http://a:1'}]}}}")
    client = stage.client()
    client.says(request("POST /", "expect: 100-continue", "content-length: 11"))
    assert read_answer(client.hears()).status == 413
    assert client.transport.eof_heard
    stage.check_idle(counted=1)


def test_other_expectations_are_refused(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /", "expect: 200-ok", body=b""))
    assert read_answer(client.hears()).status in (400, 417)


# ---------------------------------------------------------------------- upgrades


def test_after_an_upgrade_bytes_are_bytes(stage: Stage) -> None:
    client = stage.client()
    client.says(UPGRADE)
    replica = stage.replica()
    heard = read_request(replica.hears())
    assert (heard["connection"], heard["upgrade"], heard["sec-websocket-key"]) == ("upgrade", "websocket", "x")
    replica.says(SWITCH + b"first")
    received = client.hears()
    assert received.endswith(b"\r\n\r\nfirst")
    assert read_answers(received[:-5])[0].status == 101
    client.says(b"GET / HTTP/1.1\r\n\r\n", b"\x00\xff")
    assert replica.hears() == b"GET / HTTP/1.1\r\n\r\n\x00\xff"
    replica.says(b"HTTP/1.1 200 OK\r\n\r\n")
    assert client.hears() == b"HTTP/1.1 200 OK\r\n\r\n"
    assert stage.balancer.pool("*").active == 1
    client.breaks()
    assert replica.closed
    stage.check_idle(counted=1)


def test_what_was_sent_before_the_101_reaches_the_replica_after_it(stage: Stage) -> None:
    client = stage.client()
    client.says(UPGRADE + b"early")
    replica = stage.replica()
    replica.hears()
    client.says(b"x" * 100_000)
    assert replica.hears() == b""
    replica.says(SWITCH)
    assert replica.hears() == b"early" + b"x" * 100_000
    assert not client.transport.paused
    client.says(b"later")
    assert replica.hears() == b"later"


@pytest.mark.parametrize("first", ["client", "replica"])
def test_a_tunnel_ends_when_both_sides_have_ended(stage: Stage, first: str) -> None:
    client = stage.client()
    client.says(UPGRADE)
    replica = stage.replica()
    replica.says(SWITCH)
    ends, other = (client, replica) if first == "client" else (replica, client)
    client.hears()
    replica.hears()
    ends.ends()
    assert other.transport.eof_heard
    other.says(b"still talking")
    assert ends.hears() == b"still talking"
    other.ends()
    stage.pass_time(1)
    assert client.closed
    assert replica.closed
    stage.check_idle(counted=1)


@pytest.mark.parametrize("who", ["client", "replica"])
def test_a_tunnel_that_breaks_is_over_on_both_sides(stage: Stage, who: str) -> None:
    client = stage.client()
    client.says(UPGRADE)
    replica = stage.replica()
    replica.says(SWITCH)
    (client if who == "client" else replica).breaks()
    assert client.closed
    assert replica.closed
    stage.check_idle(counted=1)


def test_an_upgrade_may_be_declined(stage: Stage) -> None:
    client = stage.client()
    client.says(UPGRADE)
    stage.replica().says(answer(b"no"))
    assert read_answer(client.hears()).body == b"no"
    client.says(request())
    stage.replica().says(answer(b"yes"))
    assert read_answer(client.hears()).body == b"yes"
    stage.check_idle(counted=2)


def test_a_101_that_nobody_asked_for_is_nonsense(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /", body=b""))
    stage.replica().says(SWITCH)
    assert read_answer(client.hears())["steelyard-reason"] == "replica_invalid_response"
    stage.check_idle(counted=1)


@pytest.mark.parametrize(
    "headers",
    [
        ("upgrade: websocket",),
        ("connection: upgrade",),
        ("connection: upgrade", "upgrade: h2c"),
        ("connection: upgrade, http2-settings", "upgrade: websocket, h2c", "http2-settings: x"),
    ],
)
def test_only_a_real_upgrade_is_passed_on_and_never_to_http_2(stage: Stage, headers: tuple[str, ...]) -> None:
    """A tunnel of HTTP/2 would carry requests past every limit and route."""
    client = stage.client()
    client.says(request("GET /", *headers))
    heard = read_request(stage.replica().hears())
    assert "h2c" not in ",".join(heard.all("upgrade"))
    assert heard.all("connection") == heard.all("upgrade") == []


# ---------------------------------------------------------------------- HTTP/1.0


def test_an_old_client_is_served_and_its_connection_closed(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /", version="1.0"))
    heard = read_request(stage.replica().hears())
    assert (heard.first, heard["host"]) == ("GET / HTTP/1.1", "a:1")
    stage.replica().says(answer(b"hello"))
    response = read_answer(client.hears())
    assert (response["connection"], response.body) == ("close", b"hello")
    assert client.closed
    stage.check_idle(counted=1)


def test_an_old_client_may_keep_its_connection(stage: Stage) -> None:
    client = stage.client()
    for _ in range(2):
        client.says(request("GET /", "Connection: Keep-Alive", version="1.0"))
        stage.replica().says(answer(b"hello"))
        assert read_answer(client.hears())["connection"] == "keep-alive"
    assert not client.closed
    stage.check_idle(counted=2)


@pytest.mark.parametrize("keep", [(), ("connection: keep-alive",)])
def test_an_old_client_knows_no_chunks(stage: Stage, keep: tuple[str, ...]) -> None:
    client = stage.client()
    client.says(request("GET /", *keep, version="1.0"))
    stage.replica().says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", chunked(b"hel", b"lo")[:9])
    stage.replica().says(chunked(b"hel", b"lo")[9:])
    received = client.hears()
    assert b"chunked" not in received
    assert received.endswith(b"\r\n\r\nhello")
    assert client.closed
    stage.check_idle(counted=1)


def test_an_old_client_cannot_upgrade(stage: Stage) -> None:
    """RFC 9110, 7.8: an upgrade in HTTP/1.0 is to be ignored."""
    client = stage.client()
    client.says(request("GET /", "connection: upgrade", "upgrade: websocket", version="1.0"))
    assert "upgrade" not in read_request(stage.replica().hears())


def test_an_old_request_in_chunks_is_refused(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /", "transfer-encoding: chunked", version="1.0") + chunked(b"a"))
    assert read_answer(client.hears()).status == 400
    assert stage.dialling == []
