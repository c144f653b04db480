"""The way to one server: connections made, kept, refused, and given up."""

import asyncio
import errno
import ssl
from collections.abc import Callable

import pytest

from steelyard.gateway.proxy.upstream_connection import UpstreamConnection

from ...reading import answer, read_answer, read_request, request
from ...stage import Stage
from ...transports import FakeTransport

ONE = "models: {m: {retry: {max_attempts: 1}, replicas: [{url: 'http://a:1'}]}}"
TWO = "models: {m: {policy: round_robin, replicas: [{url: 'http://a:1'}, {url: 'http://b:1'}]}}"


@pytest.mark.parametrize(
    "problem",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        OSError(errno.EHOSTUNREACH, "no route"),
        OSError("Multiple exceptions: …"),
        ssl.SSLCertVerificationError(1, "self-signed"),
        TimeoutError(),
        UnicodeError("label too long"),
        ValueError("server_hostname cannot start with a dot"),
        KeyError("context"),
    ],
)
def test_whatever_goes_wrong_the_client_is_told(staged: Callable[..., Stage], problem: Exception) -> None:
    stage = staged(ONE)
    client = stage.client()
    client.says(request())
    stage.dial().fail(problem)
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (502, "replica_unreachable")
    (replica,) = stage.balancer.pool("m").replicas.values()
    assert replica.failed == 1
    stage.check_idle(counted=1)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL])
def test_what_this_machine_lacks_is_not_the_replicas_fault(staged: Callable[..., Stage], number: int) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request())
    stage.dial().fail(OSError(number, "out of it"))
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (503, "file_descriptors_exhausted")
    assert "retry-after" in response
    assert sum(replica.failed for replica in stage.balancer.pool("m").replicas.values()) == 0
    assert stage.dialling == []
    stage.check_idle(counted=1)


def test_a_connection_made_in_the_moment_its_time_was_up_is_not_used_twice(staged: Callable[..., Stage]) -> None:
    """The timeout may ring between `connection_made` and the return of `create_connection`: the request is out."""
    stage = staged(TWO)
    client = stage.client()
    client.says(request("POST /once", body=b"x"))
    dial = stage.dial()
    protocol = dial.factory()
    transport = FakeTransport(stage.loop, protocol)
    protocol.connection_made(transport)
    stage.loop.settle()
    assert read_request(bytes(transport.heard)).whole
    dial.fail(TimeoutError())
    assert stage.dialling == [], "it would run twice"
    transport.say(answer(b"ok"))
    assert read_answer(client.hears()).body == b"ok"
    stage.check_idle(counted=1)


def test_the_last_used_is_used_first_and_the_oldest_go(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    clients = [stage.client() for _ in range(3)]
    for client in clients:
        client.says(request())
    wires = [stage.accept() for _ in range(3)]
    for wire in wires:
        wire.says(answer())
        stage.pass_time(1)
    clients[0].says(request("GET /again"))
    assert stage.replica() is wires[2]
    stage.pass_time(1.5)
    assert [wire.closed for wire in wires] == [True, False, False]
    stage.replica().says(answer())
    stage.check_idle(counted=4)


def test_what_may_not_run_twice_gets_a_connection_used_just_now(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    client = stage.client()
    client.says(request())
    old = stage.replica()
    old.says(answer())
    stage.pass_time(1.5)
    client.says(request("POST /once", body=b"x"))
    new = stage.replica()
    assert new is not old
    new.says(answer())
    stage.check_idle(counted=2)


def test_a_connection_its_server_closed_is_not_used(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    client = stage.client()
    client.says(request())
    old = stage.replica()
    old.says(answer())
    old.ends()
    (endpoint,) = stage.proxy.connection_pools.values()
    assert endpoint.idle == []
    client.says(request())
    assert stage.replica() is not old
    stage.replica().says(answer())
    stage.check_idle(counted=2)


@pytest.mark.parametrize(
    "last",
    [
        "1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        "1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 0\r\n\r\n",
        "1.1 200 OK\r\nconnection: close\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n",
        "1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        "1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_a_connection_whose_server_says_it_is_the_last_is_not_kept(stage: Stage, last: str) -> None:
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    replica.says(b"HTTP/" + last.encode())
    assert read_answer(client.hears()).whole
    assert replica.closed
    assert not client.closed
    stage.check_idle(counted=1)


def test_an_old_server_may_keep_its_connection(stage: Stage) -> None:
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    replica.says(b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\ncontent-length: 0\r\n\r\n")
    assert read_answer(client.hears()).first == "HTTP/1.1 200 OK"
    assert not replica.closed


def test_a_unix_socket(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {replicas: [{url: 'unix:/run/model.sock'}]}}")
    client = stage.client()
    client.says(request("GET /", version="1.0"))
    replica = stage.accept("/run/model.sock")
    assert read_request(replica.hears())["host"] == "localhost"
    replica.says(answer(b"ok"))
    assert client.hears().endswith(b"ok")


def test_tls_is_asked_for_with_the_name_expected(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {tls: {server_name: model.example}, replicas: [{url: 'https://a'}]}}")
    client = stage.client()
    client.says(request())
    dial = stage.dial("a:443")
    assert dial.how["server_hostname"] == "model.example"
    assert dial.how["ssl"].verify_mode is ssl.CERT_REQUIRED
    assert dial.how["ssl"].check_hostname


def test_tls_without_checks_only_if_asked(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {tls: {verify: false}, replicas: [{url: 'https://a'}]}}")
    client = stage.client()
    client.says(request())
    assert stage.dial().how["ssl"].verify_mode is ssl.CERT_NONE


def test_nothing_is_left_of_connections_that_were_being_made(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    client = stage.client()
    client.says(request())
    stage.reload("models: {m: {replicas: []}}")
    client.breaks()
    stage.pass_time(5)
    assert stage.dialling == []
    assert not asyncio.all_tasks(stage.loop)
    stage.check_idle(counted=1)


def test_a_connection_that_nobody_waits_for_any_more_is_closed_if_its_server_is_gone(
    staged: Callable[..., Stage],
) -> None:
    stage = staged(ONE)
    client = stage.client()
    client.says(request())
    dial = stage.dial()
    client.breaks()
    stage.reload("models: {m: {replicas: []}}")
    assert dial.accept().closed
    assert isinstance(stage.loop.wires[-1].transport.protocol, UpstreamConnection)
    stage.check_idle(counted=1)


def test_a_connection_with_an_unsent_request_is_not_kept(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /", body=b"x" * 10_000))
    replica = stage.replica()
    replica.says(answer(b"early", status="400 Bad Request"))
    assert read_answer(client.hears()).status == 400
    assert not replica.closed  # all of it is sent
    replica.stops_reading()
    client.says(request("POST /", body=b"x" * 10_000))
    replica.says(answer(b"early", status="400 Bad Request"))
    assert read_answer(client.hears()).status == 400
    assert replica.closed
    stage.check_idle(counted=2)


@pytest.mark.parametrize(("size", "status"), [(100_000, "400 Bad Request"), (10_000, "413 Too Large")])
def test_a_connection_is_not_kept_after_an_error_that_may_come_before_the_body_is_read(
    stage: Stage, size: int, status: str
) -> None:
    """Whether the replica will read it, nobody can see: it may be in the kernel's buffers, or behind TLS."""
    client = stage.client()
    client.says(request("POST /", body=b"x" * size))
    replica = stage.replica()
    replica.says(answer(b"early", status=status))
    assert read_answer(client.hears()).status == int(status[:3])
    assert replica.closed


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"200 OK\r\ncontent-length: 5"),
        ("HEAD", b"200 OK\r\ntransfer-encoding: chunked"),
        ("GET", b"204 No Content\r\ncontent-length: 5"),
        ("GET", b"304 Not Modified\r\ncontent-length: 5"),
    ],
)
def test_a_connection_is_not_kept_where_a_body_may_follow_that_must_not(stage: Stage, method: str, head: bytes) -> None:
    """A careless server sends it all the same, and late: it would be the next client's answer."""
    client = stage.client()
    client.says(request(f"{method} /"))
    replica = stage.replica()
    replica.says(b"HTTP/1.1 " + head + b"\r\n\r\n")
    assert read_answer(client.hears(), method).status in (200, 204, 304)
    assert replica.closed
    assert not client.closed
    stage.check_idle(counted=1)
