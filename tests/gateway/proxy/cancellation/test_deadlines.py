"""Deadlines that clients give: while the request waits, connects, runs, streams."""

import re
from collections.abc import Callable

import pytest

from steelyard.gateway.proxy.deadlines import MAX_STALE_DEADLINES

from ...reading import answer, read_answer, request
from ...stage import Stage

TWO = "models: {m: {policy: round_robin, replicas: [{url: 'http://a:1'}, {url: 'http://b:1'}]}}"
ONE_AT_A_TIME = "models: {m: {concurrency: 1, replicas: [{url: 'http://a:1'}]}}"
SECOND = "steelyard-timeout-ms: 1000"


def test_while_it_waits(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE_AT_A_TIME)
    first, second = stage.client(), stage.client()
    first.says(request())
    second.says(request("GET /", SECOND))
    replica = stage.replica()
    stage.pass_time(0.9)
    assert second.hears() == b""
    stage.pass_time(0.2)
    response = read_answer(second.hears())
    assert (response.status, response["steelyard-reason"]) == (503, "deadline")
    assert "retry-after" in response
    assert stage.account("m").refused == 1
    replica.says(answer())
    stage.check_idle(counted=2)


def test_while_the_connection_is_made(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /", SECOND))
    dial = stage.dial()
    stage.pass_time(1.1)
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (504, "deadline")
    assert dial.accept().hears() == b""
    assert stage.account().failed == 1
    stage.check_idle(counted=1)


def test_while_it_runs(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request("GET /", SECOND))
    replica = stage.replica()
    stage.pass_time(1.1)
    assert read_answer(client.hears())["steelyard-reason"] == "deadline"
    assert replica.closed
    assert stage.dialling == [], "there is no time to try again"
    assert not client.closed
    client.says(request())
    stage.replica().says(answer(b"ok"))
    assert read_answer(client.hears()).body == b"ok"
    stage.check_idle(counted=2)


@pytest.mark.parametrize("said", [b"content-length: 2\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n2\r\n"])
def test_an_answer_that_has_begun_may_go_on(stage: Stage, said: bytes) -> None:
    client = stage.client()
    client.says(request("GET /", SECOND))
    replica = stage.replica()
    stage.pass_time(0.9)
    replica.says(b"HTTP/1.1 200 OK\r\n" + said)
    stage.pass_time(5)
    replica.says(b"ok" if b"length" in said else b"ok\r\n0\r\n\r\n")
    assert read_answer(client.hears()).body == b"ok"
    assert stage.account().ok == 1
    stage.check_idle(counted=1)


def test_nothing_is_tried_again_after_it(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request("GET /", SECOND))
    stage.pass_time(0.5)
    stage.replica().says(answer(b"", status="500 Broken"))
    stage.pass_time(0.6)
    assert read_answer(client.hears())["steelyard-reason"] == "deadline"
    stage.check_idle(counted=1)


def test_one_that_has_passed_already_is_refused(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /", "steelyard-timeout-ms: 0"))
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (503, "deadline")
    assert stage.dialling == []
    stage.check_idle(counted=1)


def test_it_counts_from_the_head_not_from_the_body(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /", SECOND, "content-length: 2") + b"x")
    stage.pass_time(1.5)
    client.says(b"x")
    assert read_answer(client.hears())["steelyard-reason"] == "deadline"
    stage.check_idle(counted=1)


CHAT = "models: {m: {dialect: openai, %s replicas: [{url: 'http://a:1'}]}}"
STREAM = b'{"model": "m", "stream": true, "messages": []}'
WHOLE = b'{"model": "m", "messages": []}'


def long_streams(stage: Stage, count: int = 40) -> None:
    """Answers of ten seconds whose first byte came after 50 ms: what the estimator learns from."""
    for _ in range(count):
        client = stage.client()
        client.says(request("POST /v1/chat/completions", body=STREAM))
        replica = stage.replica()
        stage.pass_time(0.05)
        replica.says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
        stage.pass_time(9.95)
        replica.says(b"0\r\n\r\n")
        client.hears()


@pytest.mark.parametrize(("settings", "header"), [("", "x-slo-ttft-ms: 1000"), ("timeout: 1s,", "x-other: 1")])
def test_one_of_the_first_byte_takes_a_long_stream_on_an_idle_fleet(
    staged: Callable[..., Stage], settings: str, header: str
) -> None:
    stage = staged(CHAT % settings)
    long_streams(stage)
    client = stage.client()
    client.says(request("POST /v1/chat/completions", header, body=STREAM))
    replica = stage.replica()
    stage.pass_time(0.05)
    replica.says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
    stage.pass_time(30)
    replica.says(b"0\r\n\r\n")
    assert read_answer(client.hears()).body == b"ok", "a stream that has begun is not cut"
    stage.check_idle()


def test_the_refusal_says_by_which_it_was_judged(staged: Callable[..., Stage]) -> None:
    stage = staged(CHAT % "")
    long_streams(stage)
    for header, body, words in (
        ("steelyard-timeout-ms: 1000", STREAM, "could finish this before its deadline"),
        ("x-slo-ttft-ms: 1000", WHOLE, "could begin the answer before its first-byte deadline"),
    ):
        client = stage.client()
        client.says(request("POST /v1/chat/completions", header, body=body))
        response = read_answer(client.hears())
        assert (response.status, response["steelyard-reason"]) == (503, "deadline")
        assert words in response.body.decode()
        assert re.search(r"predicted after [\d.]+ s; it allows 1.00 s", response.body.decode())


def test_that_of_the_model(staged: Callable[..., Stage]) -> None:
    """Of a client that nobody vouches for it holds whatever it says: test_client_identity.py."""
    stage = staged("{trusted_proxies: [192.0.2.7], models: {m: {timeout: 1s, replicas: [{url: 'http://a:1'}]}}}")
    patient, hasty = stage.client(), stage.client()
    patient.says(request("GET /", "steelyard-timeout-ms: 5000"))
    hasty.says(request())
    while stage.dialling:
        stage.accept()
    stage.pass_time(1.1)
    assert read_answer(hasty.hears())["steelyard-reason"] == "deadline"
    assert patient.hears() == b""
    stage.pass_time(4)
    assert read_answer(patient.hears())["steelyard-reason"] == "deadline"
    stage.check_idle(counted=2)


def test_the_soonest_rings_first(stage: Stage) -> None:
    clients = {ms: stage.client() for ms in (900, 300, 600)}
    for ms, client in clients.items():
        client.says(request("GET /", f"steelyard-timeout-ms: {ms}"))
    while stage.dialling:
        stage.accept()
    for ms in (300, 600, 900):
        assert clients[ms].hears() == b""
        stage.pass_time(0.31)
        assert read_answer(clients[ms].hears())["steelyard-reason"] == "deadline"
    stage.check_idle(counted=3)


def test_distant_ones_are_forgotten_with_their_requests(stage: Stage) -> None:
    """Clients choose them: each must not cost memory until its day."""
    client = stage.client()
    for _ in range(3 * MAX_STALE_DEADLINES):
        client.says(request("GET /", "steelyard-timeout-ms: 999999999999"))
        stage.replica().says(answer())
    assert stage.proxy.deadlines.stale <= MAX_STALE_DEADLINES + 1
    stage.check_idle(counted=3 * MAX_STALE_DEADLINES)


def test_those_of_running_requests_outlive_the_clearing(stage: Stage) -> None:
    slow = stage.client()
    slow.says(request("GET /slow", "steelyard-timeout-ms: 5000"))
    waiting = stage.replica()
    client = stage.client()
    for _ in range(2 * MAX_STALE_DEADLINES):
        client.says(request("GET /", "steelyard-timeout-ms: 999999"))
        while stage.dialling:
            stage.accept()
        (busy,) = [w for w in stage.loop.wires if w.transport.protocol in stage.proxy.active and w is not waiting]
        busy.says(answer())
    stage.pass_time(5.1)
    assert read_answer(slow.hears())["steelyard-reason"] == "deadline"
    stage.check_idle(counted=2 * MAX_STALE_DEADLINES + 1)


def test_the_slot_of_one_that_was_too_late_goes_to_who_waits(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE_AT_A_TIME)
    late, waiting = stage.client(), stage.client()
    late.says(request("GET /late", SECOND))
    stage.replica()
    waiting.says(request("GET /next"))
    stage.pass_time(1.1)
    assert read_answer(late.hears())["steelyard-reason"] == "deadline"
    stage.replica().says(answer(b"next"))
    assert read_answer(waiting.hears()).body == b"next"
    stage.check_idle(counted=2)
