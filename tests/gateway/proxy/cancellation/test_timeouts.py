"""Every wait ends: for clients that are slow, replicas that are silent, requests whose deadline passes."""

from collections.abc import Callable

import pytest

from ...reading import answer, chunked, read_answer, read_answers, read_request, request
from ...stage import Stage

QUICK = """
limits: {connection_buffer_bytes: 1000, replay_bytes: 1000, min_body_rate: 0}
timeouts: {header: 10s, body: 20s, idle: 30s, write: 40s, connect: 2s, first_byte: 50s, stream_idle: 60s, total: 200s}
models: {m: {policy: round_robin, retry: {max_attempts: 1}, replicas: [{url: 'http://a:1'}]}}
"""
TWO = QUICK.replace("retry: {max_attempts: 1}, ", "").replace("[{url", "[{url: 'http://b:1'}, {url")
WAITING = QUICK.replace("policy", "concurrency: 1, queue_timeout: 25s, policy")
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture
def quick(staged: Callable[..., Stage]) -> Stage:
    return staged(QUICK)


# ---------------------------------------------------------------------- the client is slow


def test_a_connection_without_a_request(quick: Stage) -> None:
    client = quick.client()
    quick.pass_time(29)
    assert not client.closed
    quick.pass_time(2)
    assert client.closed
    assert client.hears() == b""
    quick.check_idle(counted=0)


def test_a_connection_without_another_request(quick: Stage) -> None:
    client = quick.client()
    quick.pass_time(20)
    client.says(request())
    replica = quick.replica()
    quick.pass_time(25)
    replica.says(answer())
    quick.pass_time(29)
    assert not client.closed
    quick.pass_time(2)
    assert client.closed
    quick.check_idle(counted=1)


def test_a_head_that_drips_in_has_its_time_from_the_first_byte(quick: Stage) -> None:
    client = quick.client()
    quick.pass_time(25)
    for byte in b"GET / HTTP":
        client.says(bytes([byte]))
        quick.pass_time(0.9)
    assert client.hears() == b""
    client.says(b"/")
    quick.pass_time(1.5)
    assert read_answer(client.hears())["steelyard-reason"] == "head_timeout"
    quick.pass_time(3)
    assert client.closed
    quick.check_idle(counted=1)


def test_the_second_head_has_its_own_time(quick: Stage) -> None:
    client = quick.client()
    client.says(request() + b"GET / HTTP/1.1\r\n")
    replica = quick.replica()
    quick.pass_time(15)
    replica.says(answer())
    quick.pass_time(8)
    assert len(read_answers(client.hears())) == 1
    quick.pass_time(3)
    assert read_answer(client.hears())["steelyard-reason"] == "head_timeout"
    quick.check_idle(counted=2)


def test_a_head_that_was_refused_late_is_refused_once(quick: Stage) -> None:
    client = quick.client()
    client.says(b"GET / HTTP/1.1\r\n")
    client.says(b"x: bare\n")
    quick.pass_time(60)
    assert read_answer(client.hears()).status == 400
    assert client.closed
    quick.check_idle(counted=1)


@pytest.mark.parametrize("framing", ["content-length: 100", "transfer-encoding: chunked"])
def test_a_body_may_take_long_but_not_stand_still(quick: Stage, framing: str) -> None:
    client = quick.client()
    client.says(request("POST /", framing))
    for _ in range(5):
        quick.pass_time(19)
        client.says(b"1\r\nx\r\n" if "chunked" in framing else b"x")
    quick.pass_time(21)
    assert read_answer(client.hears())["steelyard-reason"] == "body_timeout"
    quick.pass_time(3)
    assert client.closed
    quick.check_idle(counted=1)


@pytest.mark.parametrize("body", [b"", b"x" * 1500])
def test_a_body_that_stands_still_on_its_way_to_a_replica(quick: Stage, body: bytes) -> None:
    client = quick.client()
    client.says(request("POST /", "content-length: 5000") + b"x" * 1500)
    replica = quick.replica()
    if body:
        quick.pass_time(15)
        client.says(body)
    quick.pass_time(21)
    assert read_answer(client.hears())["steelyard-reason"] == "body_timeout"
    assert replica.closed
    quick.check_idle(counted=1)


def test_an_answer_that_is_not_read(quick: Stage) -> None:
    client = quick.client()
    client.says(request())
    client.stops_reading()
    replica = quick.replica()
    replica.says(STREAM + b"7d0\r\n" + b"x" * 2000 + b"\r\n")
    quick.pass_time(39)
    assert not client.closed
    quick.pass_time(2)
    assert client.cut_off
    assert replica.closed
    quick.check_idle(counted=1)


def test_an_answer_that_is_not_read_though_the_body_goes_on(quick: Stage) -> None:
    client = quick.client()
    client.says(request("POST /", "content-length: 2000") + b"x" * 1500)
    client.stops_reading()
    replica = quick.replica()
    replica.says(STREAM + b"7d0\r\n" + b"x" * 2000 + b"\r\n")
    client.says(b"x" * 500)
    quick.pass_time(41)
    assert client.cut_off
    quick.check_idle(counted=1)


def test_an_answer_that_breaks_off_while_it_is_not_read_is_counted_as_cancelled(quick: Stage) -> None:
    client = quick.client()
    client.says(request())
    client.stops_reading()
    replica = quick.replica()
    replica.says(STREAM + b"7d0\r\n" + b"x" * 2000 + b"\r\n")
    (served,) = quick.balancer.pool("m").replicas.values()
    replica.breaks()
    assert client.cut_off
    assert served.failed == 0
    assert served.context.outcomes == {"cancelled": 1}
    quick.check_idle(counted=1)


# ---------------------------------------------------------------------- the replica is slow


def test_no_connection(quick: Stage) -> None:
    client = quick.client()
    client.says(request())
    quick.pass_time(2.1)
    assert read_answer(client.hears())["steelyard-reason"] == "replica_unreachable"
    assert quick.dialling == []
    quick.check_idle(counted=1)


def test_no_connection_here_but_there(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request("POST /", body=b"x"))
    (first,) = stage.dialling
    stage.pass_time(2.1)
    replica = stage.replica()
    assert replica.place != first
    replica.says(answer(b"ok"))
    assert read_answer(client.hears()).body == b"ok"
    stage.check_idle(counted=1)


def test_no_first_byte(quick: Stage) -> None:
    client = quick.client()
    client.says(request())
    replica = quick.replica()
    quick.pass_time(49)
    replica.says(b"HTTP/1.1 200")
    quick.pass_time(2)
    assert read_answer(client.hears())["steelyard-reason"] == "replica_timeout"
    assert replica.closed
    quick.check_idle(counted=1)


@pytest.mark.parametrize("head", [STREAM, b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_may_take_long_but_not_stand_still(quick: Stage, head: bytes) -> None:
    client = quick.client()
    client.says(request())
    replica = quick.replica()
    replica.says(head)
    for _ in range(2):
        quick.pass_time(59)
        assert not client.closed
        replica.says(b"1\r\nx\r\n")
    quick.pass_time(61)
    assert client.cut_off
    assert replica.closed
    assert quick.account("m").failed == 1
    quick.check_idle(counted=1)


def test_no_answer_takes_longer_than_the_total(quick: Stage) -> None:
    client = quick.client()
    client.says(request())
    replica = quick.replica()
    replica.says(STREAM)
    for _ in range(7):
        replica.says(b"1\r\nx\r\n")
        quick.pass_time(30)
    assert client.cut_off
    quick.check_idle(counted=1)


def test_a_connection_nobody_needs(staged: Callable[..., Stage]) -> None:
    stage = staged()
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    replica.says(answer())
    stage.pass_time(3.5)
    assert not replica.closed
    stage.pass_time(1)
    assert replica.closed
    client.says(request())
    stage.replica().says(answer())
    stage.check_idle(counted=2)


# ---------------------------------------------------------------------- waiting


def test_nobody_waits_longer_than_is_configured(staged: Callable[..., Stage]) -> None:
    stage = staged(WAITING)
    first, second = stage.client(), stage.client()
    first.says(request())
    second.says(request("POST /", body=b"x"))
    stage.replica()
    stage.pass_time(24)
    assert second.hears() == b""
    stage.pass_time(2)
    response = read_answer(second.hears())
    assert (response.status, response["steelyard-reason"]) == (503, "queue_timeout")
    assert int(response["retry-after"]) >= 1
    assert not second.closed
    assert stage.account("m").refused == 1
    stage.replica().says(answer())
    stage.check_idle(counted=2)


@pytest.mark.interpreted("replaces a method of a compiled object")
def test_the_clock_goes_on_after_something_went_wrong(quick: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One timer serves all: whatever is raised on its way, it must ring again."""
    client = quick.client()
    client.says(b"GET")

    def broken(now: float) -> None:
        raise RuntimeError("a policy of the user's own")

    with monkeypatch.context() as patch:
        patch.setattr(quick.balancer, "expire", broken)
        quick.pass_time(1)
        assert quick.loop.problems
        quick.loop.problems.clear()
    quick.pass_time(10)
    assert read_answer(client.hears())["steelyard-reason"] == "head_timeout"


def test_a_chunked_body_may_end_late(quick: Stage) -> None:
    client = quick.client()
    client.says(request("POST /", "transfer-encoding: chunked"), chunked(b"hello")[:-2])
    quick.pass_time(19)
    client.says(b"\r\n")
    assert read_request(quick.replica().hears()).body == b"hello"
    quick.pass_time(45)
    quick.replica().says(answer())
    quick.check_idle(counted=1)
