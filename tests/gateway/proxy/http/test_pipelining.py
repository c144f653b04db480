"""Several requests on one connection: answered in order, one at a time, read ahead within bounds."""

from collections.abc import Callable

import pytest

from steelyard.gateway.proxy.client_connection import MAX_PIPELINED_BYTES

from ...reading import answer, chunked, read_answer, read_answers, read_request, request
from ...stage import Stage

OPENAI = "models: {m: {dialect: openai, replicas: [{url: 'http://a:1'}]}}"


def test_answers_come_in_the_order_of_the_requests(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /1", body=b"one") + request("GET /2") + request("GET /3"))
    for number in (1, 2, 3):
        replica = stage.replica()
        assert read_request(replica.hears()).first.split(" ")[1] == f"/{number}"
        replica.says(answer(b"%d" % number))
    assert [message.body for message in read_answers(client.hears())] == [b"1", b"2", b"3"]
    stage.check_idle(counted=3)


def test_the_next_request_waits_for_the_answer_in_progress(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /1") + request("GET /2"))
    replica = stage.replica()
    replica.says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel")
    assert len(stage.proxy.active) == 1
    replica.hears()
    replica.says(b"lo")
    assert read_request(stage.replica().hears()).first.startswith("GET /2 ")
    stage.replica().says(answer())
    stage.check_idle(counted=2)


def test_after_the_last_answer_nothing_more_is_served(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /1", "connection: close") + request("GET /2"))
    stage.replica().says(answer(b"1"))
    assert read_answer(client.hears())["connection"] == "close"
    assert client.closed
    stage.check_idle(counted=1)


def test_a_bad_request_after_a_good_one_is_refused_after_its_answer(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /1") + b"nonsense\r\n\r\n")
    stage.replica().says(answer(b"1"))
    assert [message.status for message in read_answers(client.hears())] == [200, 400]
    assert client.transport.eof_heard
    stage.pass_time(5)
    assert client.closed
    stage.check_idle(counted=2)


def test_many_that_are_answered_at_once_are_no_recursion(staged: Callable[..., Stage]) -> None:
    stage = staged(OPENAI)
    client = stage.client()
    client.says(request("GET /v1/models") * 3000)
    assert [message.status for message in read_answers(client.hears())] == [200] * 3000
    stage.check_idle(counted=3000)


def test_many_that_are_refused_at_once_are_no_recursion(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {replicas: []}}")
    client = stage.client()
    client.says(request("GET /") * 3000)
    assert [message.status for message in read_answers(client.hears())] == [503] * 3000
    stage.check_idle(counted=3000)


def test_what_is_read_ahead_is_bounded(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /1"))
    while not client.transport.paused:
        client.says(request("GET /2") * 100)
        assert len(client.transport.protocol.pending) < 2 * MAX_PIPELINED_BYTES
    replica = stage.replica()
    replica.says(answer())
    assert not client.transport.paused
    client.breaks()
    stage.check_idle()


def test_a_client_that_asks_and_asks_and_does_not_read_is_not_read_either(staged: Callable[..., Stage]) -> None:
    stage = staged(OPENAI)
    client = stage.client()
    client.stops_reading()
    for _ in range(12):
        client.says(request("GET /v1/models") * 500)
    assert client.transport.paused
    assert len(client.transport.protocol.pending) < 4 * MAX_PIPELINED_BYTES
    assert client.transport.waiting_to_be_read < 2 << 20
    client.transport.slow = False
    while client.transport.waiting_to_be_read or client.transport.paused:
        client.reads_on()
    assert [message.status for message in read_answers(client.hears())] == [200] * 6000
    stage.check_idle(counted=6000)


@pytest.mark.parametrize("body", ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n"])
def test_what_follows_a_body_is_the_next_request_to_the_byte(stage: Stage, body: str) -> None:
    client = stage.client()
    first = f"POST /1 HTTP/1.1\r\nhost: a\r\n{body}".encode() + (chunked(b"hello") if "chunked" in body else b"")
    client.says(first + request("GET /2") + b"\r\n" + request("GET /3"))
    for number in (1, 2, 3):
        heard = read_request(stage.replica().hears())
        assert heard.first.split(" ")[1] == f"/{number}"
        assert heard.body == (b"hello" if number == 1 else b"")
        stage.replica().says(answer())
    stage.check_idle(counted=3)


def test_empty_lines_before_a_request_are_skipped_but_not_for_ever(stage: Stage) -> None:
    client = stage.client()
    client.says(b"\r\n" + request("GET /1"))
    stage.replica().says(answer())
    assert read_answer(client.hears()).status == 200
    client.says(b"\r\n" * 100_000)
    assert read_answer(client.hears()).status == 400
    assert client.transport.eof_heard
