"""Back-pressure: who does not read is not written to without bound, whoever it is, and nobody stays paused."""

from collections.abc import Callable

import pytest

from ...reading import answer, chunked, read_answer, read_answers, read_request, request
from ...stage import Stage

SMALL = (
    "{limits: {connection_buffer_bytes: 1000, replay_bytes: 1000}, "
    "models: {m: {policy: round_robin, replicas: [{url: 'http://a:1'}]}}}"
)
TWO = SMALL.replace("[{url", "[{url: 'http://b:1'}, {url")
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
MORE_THAN_BUFFER_BYTES = 1 << 16  # far more than the buffer


@pytest.mark.parametrize(
    "head",
    [STREAM, b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % MORE_THAN_BUFFER_BYTES, b"HTTP/1.1 200 OK\r\n\r\n"],
)
def test_a_client_that_does_not_read_pauses_the_replica(staged: Callable[..., Stage], head: bytes) -> None:
    stage = staged(SMALL)
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    replica.says(head)
    client.stops_reading()
    piece = b"x" * 100 if head != STREAM else b"5\r\nhello\r\n" * 10
    for _ in range(30):
        replica.says(piece)
    assert replica.transport.paused
    assert client.transport.waiting_to_be_read < 1500
    client.reads_on()
    assert not replica.transport.paused
    assert client.transport.waiting_to_be_read == 0
    assert client.hears().count(b"x" * 100 if head != STREAM else b"hello") >= 30
    client.breaks()
    stage.check_idle(counted=1)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("length", [True, False])
def test_the_last_bytes_of_an_answer_do_not_leave_the_replica_paused(
    staged: Callable[..., Stage], version: str, length: bool
) -> None:
    stage = staged(SMALL)
    client = stage.client()
    client.says(request("GET /", "connection: keep-alive", version=version))
    replica = stage.replica()
    client.stops_reading()
    replica.says(answer(b"x" * 5000) if length else STREAM + chunked(b"x" * 5000))
    assert not replica.transport.paused
    other = stage.client()
    other.says(request())
    stage.replica().says(answer(b"for the other"))
    assert read_answer(other.hears()).body == b"for the other"
    client.reads_on()
    assert read_answer(client.hears()).body == b"x" * 5000
    stage.check_idle(counted=2)


def test_a_replica_that_does_not_read_pauses_the_client(staged: Callable[..., Stage]) -> None:
    stage = staged(SMALL)
    client = stage.client()
    client.says(request("POST /", f"content-length: {MORE_THAN_BUFFER_BYTES}") + b"x" * 2000)
    replica = stage.replica()
    assert not client.transport.paused
    replica.stops_reading()
    sent = 2000
    while not client.transport.paused:
        client.says(b"x" * 500)
        sent += 500
    assert replica.transport.waiting_to_be_read < 2500
    stage.pass_time(100)
    assert client.hears() == b"", "it is not the client who is slow"
    replica.reads_on()
    assert not client.transport.paused
    client.says(b"x" * (MORE_THAN_BUFFER_BYTES - sent))
    assert read_request(replica.hears()).body == b"x" * MORE_THAN_BUFFER_BYTES
    replica.says(answer(b"thanks"))
    assert read_answer(client.hears()).body == b"thanks"
    stage.check_idle(counted=1)


def test_a_large_body_is_not_read_on_while_nobody_takes_it(staged: Callable[..., Stage]) -> None:
    stage = staged(SMALL.replace("policy", "concurrency: 1, queue_timeout: 100s, policy"))
    first = stage.client()
    first.says(request())
    busy = stage.replica()
    busy.hears()
    client = stage.client()
    client.says(request("POST /", f"content-length: {MORE_THAN_BUFFER_BYTES}"))
    client.says(b"x" * 500)
    assert not client.transport.paused
    client.says(b"x" * 600)
    assert client.transport.paused
    assert stage.proxy.held == 1100
    stage.pass_time(60)
    assert client.hears() == b"", "it is not the client who is slow"
    busy.says(answer())
    replica = stage.replica()
    assert not client.transport.paused
    assert stage.proxy.held == 0
    client.says(b"x" * (MORE_THAN_BUFFER_BYTES - 1100))
    assert read_request(replica.hears()).whole
    replica.says(answer())
    stage.check_idle(counted=2)


def test_a_client_may_send_and_be_answered_at_the_same_time(staged: Callable[..., Stage]) -> None:
    stage = staged(SMALL)
    client = stage.client()
    client.says(request("POST /", "transfer-encoding: chunked") + b"7d0\r\n" + b"x" * 2000 + b"\r\n")
    replica = stage.replica()
    replica.says(STREAM + b"1\r\na\r\n")
    client.says(b"3\r\nyyy\r\n")
    replica.says(b"1\r\nb\r\n")
    client.says(b"0\r\n\r\n")
    heard = read_request(replica.hears())
    assert (heard.body, heard.whole) == (b"x" * 2000 + b"yyy", True)
    replica.says(b"0\r\n\r\n")
    assert read_answer(client.hears()).body == b"ab"
    assert client.closed, "whether the end of the body came before the answer's is luck: the connection is not kept"
    stage.check_idle(counted=1)


def test_an_answer_before_the_end_of_the_body_ends_the_connection(staged: Callable[..., Stage]) -> None:
    stage = staged(SMALL)
    client = stage.client()
    client.says(request("POST /", f"content-length: {MORE_THAN_BUFFER_BYTES}") + b"x" * 2000)
    replica = stage.replica()
    replica.says(answer(b"no", status="401 Who are you"))
    response = read_answer(client.hears())
    assert (response.status, response["connection"]) == (401, "close")
    assert replica.closed, "it would take the next request for the rest of this one"
    client.says(b"x" * 2000)
    assert stage.proxy.held == 0
    stage.pass_time(5)
    assert client.closed
    stage.check_idle(counted=1)


def test_who_is_stuck_before_the_answer_has_its_replica_paused_wherever_it_is_tried(
    staged: Callable[..., Stage],
) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request())
    client.stops_reading()
    first = stage.replica()
    first.says(b"HTTP/1.1 103 Early Hints\r\nlink: " + b"x" * 2000 + b"\r\n\r\n")
    assert first.transport.paused
    first.breaks()
    second = stage.replica()
    for piece in (b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % MORE_THAN_BUFFER_BYTES, *[b"x" * 1024] * 63):
        second.says(piece)
    assert client.transport.waiting_to_be_read < 5000
    client.reads_on()
    second.says(b"x" * 1024)
    assert len(read_answers(client.hears())[-1].body) == MORE_THAN_BUFFER_BYTES
    stage.check_idle(counted=1)


def test_a_client_reads_on_while_its_retry_is_on_the_way(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request())
    client.stops_reading()
    first = stage.replica()
    first.says(b"HTTP/1.1 103 Early Hints\r\nlink: " + b"x" * 2000 + b"\r\n\r\n")
    first.breaks()
    assert len(stage.dialling) == 1
    client.reads_on()
    stage.replica().says(answer(b"ok"))
    assert read_answers(client.hears())[-1].body == b"ok"
    stage.check_idle(counted=1)


@pytest.mark.parametrize("slow", ["client", "replica"])
def test_a_tunnel_passes_the_pressure_on(staged: Callable[..., Stage], slow: str) -> None:
    stage = staged(SMALL)
    client = stage.client()
    client.says(request("GET /", "connection: upgrade", "upgrade: websocket"))
    replica = stage.replica()
    replica.says(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
    sender, reader = (replica, client) if slow == "client" else (client, replica)
    reader.stops_reading()
    for _ in range(20):
        sender.says(b"x" * 200)
    assert sender.transport.paused
    assert reader.transport.waiting_to_be_read < 1500
    reader.reads_on()
    assert not sender.transport.paused
    assert reader.hears().endswith(b"x" * 4000)
    client.breaks()
    stage.check_idle(counted=1)


def test_what_is_held_of_a_body_is_let_go_when_the_answer_begins(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /", "content-length: 1000"))
    client.says(b"x" * 500)
    assert stage.proxy.held == 500
    client.says(b"x" * 500)
    replica = stage.replica()
    replica.says(STREAM)
    assert stage.proxy.held == 0
    replica.says(b"0\r\n\r\n")
    stage.check_idle(counted=1)


def test_who_was_halted_and_stuck_at_the_end_of_an_answer_is_read_again(staged: Callable[..., Stage]) -> None:
    stage = staged(SMALL.replace("replay_bytes: 1000", "replay_bytes: 100000"))
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    replica.says(answer())
    client.hears()
    replica.stops_reading()
    client.stops_reading()
    client.says(request("POST /", body=b"x" * 5000))
    assert client.transport.paused, "the replica takes nothing"
    replica.says(answer(b"y" * 5000))
    client.reads_on()
    assert read_answer(client.hears()).body == b"y" * 5000
    assert not client.transport.paused
    client.says(request())
    stage.replica().says(answer(b"next"))
    assert read_answer(client.hears()).body == b"next"


def test_chunks_that_break_the_rules_after_the_answer_began_break_it_off(staged: Callable[..., Stage]) -> None:
    stage = staged(SMALL)
    client = stage.client()
    client.says(request("POST /", "transfer-encoding: chunked") + b"7d0\r\n" + b"x" * 2000 + b"\r\n")
    replica = stage.replica()
    replica.says(STREAM + b"1\r\na\r\n")
    client.says(b"zz\r\n")
    assert client.cut_off
    assert replica.closed
    assert stage.account("m").client_error == 1
    stage.check_idle(counted=1)


def test_who_is_refused_while_halted_is_read_again_so_that_the_refusal_arrives(staged: Callable[..., Stage]) -> None:
    """A connection that is closed on unread bytes is reset, and the answer may be lost with it (RFC 9112, 9.6)."""
    stage = staged(SMALL.replace("policy", "concurrency: 1, queue_timeout: 5s, policy"))
    first = stage.client()
    first.says(request())
    stage.replica()
    client = stage.client()
    client.says(request("POST /", f"content-length: {MORE_THAN_BUFFER_BYTES}"), b"x" * 1100)
    assert client.transport.paused
    stage.pass_time(6)
    assert read_answer(client.hears())["steelyard-reason"] == "queue_timeout"
    assert client.transport.eof_heard
    assert not client.transport.paused
    client.says(b"x" * 1000)
    client.ends()
    assert client.closed
    assert not client.cut_off
