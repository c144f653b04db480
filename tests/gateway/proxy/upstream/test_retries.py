"""What is tried again, where, and what never is."""

from collections.abc import Callable

import pytest

from ...reading import answer, chunked, read_answer, read_request, request
from ...stage import Stage

TWO = "models: {m: {policy: round_robin, replicas: [{url: 'http://a:1'}, {url: 'http://b:1'}]}}"
LIMITED = "{limits: {replay_bytes: 10}, " + TWO + "}"
OTHER = {"a:1": "b:1", "b:1": "a:1"}


@pytest.mark.parametrize("status", ["500 Broken", "502 Bad", "503 Busy", "504 Late", "429 Slow down"])
def test_an_error_of_one_replica_is_tried_on_another(staged: Callable[..., Stage], status: str) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request("GET /", body=b"hello"))
    first = stage.replica()
    first.says(answer(b"sorry", status=status))
    second = stage.replica()
    assert second.place == OTHER[first.place]
    assert read_request(second.hears()).body == b"hello"
    assert client.hears() == b""
    second.says(answer(b"fine"))
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-replica"]) == (200, second.place)
    assert not first.closed, "its answer was read to the end"
    assert stage.account("m").outcomes()["ok"] == 1
    stage.check_idle(counted=1)


@pytest.mark.parametrize("status", ["501 What", "505 Version", "404 No", "400 Bad"])
def test_what_no_other_replica_could_do_better_is_not_tried_again(staged: Callable[..., Stage], status: str) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request())
    stage.replica().says(answer(b"no", status=status))
    assert read_answer(client.hears()).status == int(status[:3])
    assert not stage.proxy.active
    stage.check_idle(counted=1)


def test_the_last_answer_is_passed_on_when_nobody_else_tries(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO.replace("policy", "retry: {max_attempts: 2}, policy"))
    client = stage.client()
    client.says(request())
    stage.replica().says(answer(b"first", status="500 A"))
    stage.replica().says(answer(b"second", status="503 B"))
    response = read_answer(client.hears())
    assert (response.status, response.body) == (503, b"second")
    assert stage.account("m").failed == 1
    stage.check_idle(counted=1)


@pytest.mark.parametrize("how", ["error", "breaks", "nonsense"])
def test_what_may_not_run_twice_is_not_tried_again(staged: Callable[..., Stage], how: str) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request("POST /once", body=b"x"))
    replica = stage.replica()
    if how == "error":
        replica.says(answer(b"sorry", status="500 Broken"))
    elif how == "breaks":
        replica.breaks()
    else:
        replica.says(b"?\r\n\r\n")
    assert stage.dialling == []
    assert read_answer(client.hears()).status == (500 if how == "error" else 502)
    assert stage.account("m").failed == 1
    stage.check_idle(counted=1)


@pytest.mark.parametrize("how", ["refused", "declined"])
def test_what_may_not_run_twice_is_tried_where_nothing_was_done(staged: Callable[..., Stage], how: str) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request("POST /once", body=b"x"))
    if how == "refused":
        stage.dial().fail()
    else:
        stage.replica().says(answer(b"", status="503 Busy"))
    replica = stage.replica()
    assert read_request(replica.hears()).body == b"x"
    replica.says(answer(b"done"))
    assert read_answer(client.hears()).status == 200
    stage.check_idle(counted=1)


def test_a_connection_closed_as_it_is_used_again_is_no_failure(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {retry: {max_attempts: 2}, replicas: [{url: 'http://a:1'}]}}")
    client = stage.client()
    client.says(request())
    first = stage.replica()
    first.says(answer())
    client.hears()
    client.says(request("PUT /", body=b"again"))
    first.ends()
    second = stage.replica()
    assert second is not first
    assert read_request(second.hears()).body == b"again"
    second.says(answer(b"ok"))
    assert read_answer(client.hears()).status == 200
    (replica,) = stage.balancer.pool("m").replicas.values()
    assert (replica.failed, replica.dispatched) == (0, 2)
    stage.check_idle(counted=2)


def test_a_new_connection_that_is_closed_is_a_failure(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {retry: {max_attempts: 1}, replicas: [{url: 'http://a:1'}]}}")
    client = stage.client()
    client.says(request())
    stage.replica().ends()
    assert read_answer(client.hears())["steelyard-reason"] == "replica_failed"
    assert stage.dialling == []
    stage.check_idle(counted=1)


def test_a_connection_closed_under_what_may_not_run_twice_is_a_502(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO.replace(", {url: 'http://b:1'}", ""))
    client = stage.client()
    client.says(request())
    stage.replica().says(answer())
    client.hears()
    client.says(request("POST /once", body=b"x"))
    stage.replica().ends()
    assert read_answer(client.hears()).status == 502
    assert stage.dialling == []
    stage.check_idle(counted=2)


def test_half_a_head_is_not_a_closed_idle_connection(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {retry: {max_attempts: 1}, replicas: [{url: 'http://a:1'}]}}")
    client = stage.client()
    client.says(request() + request())
    first = stage.replica()
    first.says(answer())
    client.hears()
    first.says(b"HTTP/1.1 200")
    first.ends()
    assert read_answer(client.hears()).status == 502
    stage.check_idle(counted=2)


@pytest.mark.parametrize(
    "rest", [b"content-length: 10\r\n\r\nhello", b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"]
)
@pytest.mark.parametrize("how", ["ends", "breaks"])
def test_an_answer_that_breaks_off_breaks_off_for_the_client(
    staged: Callable[..., Stage], rest: bytes, how: str
) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request() + request())
    replica = stage.replica()
    replica.says(b"HTTP/1.1 200 OK\r\n" + rest)
    getattr(replica, how)()
    assert not read_answer(client.hears()).whole
    assert client.cut_off
    assert not client.transport.eof_heard
    assert stage.dialling == []
    assert stage.account("m").failed == 1
    stage.check_idle(counted=1)


def test_an_answer_without_length_that_breaks_off_is_no_clean_end(stage: Stage) -> None:
    client = stage.client()
    client.says(request())
    stage.replica().says(b"HTTP/1.1 200 OK\r\n\r\nhello")
    stage.replica().breaks()
    assert not read_answer(client.hears()).whole
    assert client.cut_off
    stage.check_idle(counted=1)


@pytest.mark.parametrize("junk", [b"zz\r\n", b"5\nhello\r\n", b"5\r\nhello!!"])
def test_chunks_that_break_the_rules_break_the_answer_off(stage: Stage, junk: bytes) -> None:
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    replica.says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n", junk)
    assert client.cut_off
    assert replica.closed
    assert stage.account().failed == 1
    stage.check_idle(counted=1)


def test_a_body_that_was_passed_on_as_it_came_is_not_sent_again(staged: Callable[..., Stage]) -> None:
    stage = staged(LIMITED)
    client = stage.client()
    client.says(request("PUT /", "content-length: 100", body=None) + b"x" * 50)
    replica = stage.replica()
    client.says(b"x" * 20)
    replica.breaks()
    assert read_answer(client.hears()).status == 502
    assert stage.dialling == []
    stage.check_idle(counted=1)


def test_a_body_that_is_still_coming_goes_elsewhere_if_nothing_of_it_was_sent(staged: Callable[..., Stage]) -> None:
    stage = staged(LIMITED)
    client = stage.client()
    client.says(request("PUT /", "transfer-encoding: chunked") + b"32\r\n" + b"x" * 50 + b"\r\n")
    stage.dial().fail()
    replica = stage.replica()
    client.says(chunked(b"y" * 20))
    heard = read_request(replica.hears())
    assert (heard.body, heard.whole) == (b"x" * 50 + b"y" * 20, True)
    replica.says(answer())
    stage.check_idle(counted=1)
