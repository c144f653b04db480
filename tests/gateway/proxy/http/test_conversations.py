"""Whole conversations, byte by byte on both sides: what comes in here goes out there."""

from collections.abc import Callable

import pytest

from ...reading import answer, chunked, read_answer, read_answers, read_request, request
from ...stage import Stage

NAMED = ("x-request-id: 7", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
ADDED = b"via: 1.1 steelyard\r\nx-forwarded-for: 192.0.2.7\r\nx-forwarded-proto: http\r\nx-forwarded-host: gateway\r\n"


def test_to_the_byte(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /v1/chat/completions?a=b", *NAMED, "Accept:  */*", body=b"{}"))
    stage.pass_time(0.5)
    replica = stage.accept("a:1")
    assert replica.hears() == (
        b"POST /v1/chat/completions?a=b HTTP/1.1\r\nAccept:  */*\r\nhost: gateway\r\n"
        + "\r\n".join(NAMED).encode()
        + b"\r\ncontent-length: 2\r\n"
        + ADDED
        + b"\r\n{}"
    )
    stage.pass_time(0.25)
    replica.says(answer(b"hello", "Server: x", "Date: y"))
    assert client.hears() == (
        b"HTTP/1.1 200 OK\r\nServer: x\r\nDate: y\r\ncontent-length: 5\r\nvia: 1.1 steelyard\r\n"
        b"steelyard-replica: a:1\r\nserver-timing: queue;dur=0.0, replica;dur=750.0\r\nx-request-id: 7\r\n\r\nhello"
    )
    assert not client.closed
    assert not replica.closed
    stage.check_idle(counted=1)


def test_the_same_connections_serve_the_next_request(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /1"))
    replica = stage.accept()
    for number in range(2, 5):
        replica.says(answer(b"%d" % number))
        assert read_answer(client.hears()).body == b"%d" % number
        replica.hears()
        client.says(request(f"GET /{number}"))
        assert read_request(replica.hears()).first == f"GET /{number} HTTP/1.1"
    replica.says(answer())
    assert stage.dialling == []
    stage.check_idle(counted=4)


def test_what_is_for_one_hop_is_not_passed_on(stage: Stage) -> None:
    client = stage.client()
    client.says(
        request(
            "GET /",
            *("Connection: close, X-Secret", "X-Secret: 1", "Keep-Alive: timeout=5", "TE: trailers", "x-stays: 1"),
            *(
                "Proxy-Authorization: a",
                "Proxy-Connection: keep-alive",
                "x-forwarded-for: 9.9.9.9",
                "x-real-ip: 9.9.9.9",
            ),
        )
    )
    replica = stage.accept()
    heard = read_request(replica.hears())
    assert [name for name, _ in heard.headers if not name.startswith("x-forwarded")] == [
        *("x-stays", "host", "via", "x-request-id", "traceparent")
    ]
    assert heard["x-forwarded-for"] == "192.0.2.7"
    replica.says(answer(b"", "Connection: X-Hop", "X-Hop: 1", "Keep-Alive: 5", "steelyard-replica: me", "x-stays: 1"))
    response = read_answer(client.hears())
    assert response["steelyard-replica"] == "a:1"
    assert response["connection"] == "close"
    assert "x-hop" not in response
    assert "keep-alive" not in response
    assert response["x-stays"] == "1"
    assert client.closed
    assert not replica.closed


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answers_that_have_no_body(stage: Stage, status: str) -> None:
    client = stage.client()
    client.says(request())
    replica = stage.accept()
    replica.says(f"HTTP/1.1 {status}\r\netag: x\r\n\r\n".encode())
    response = read_answer(client.hears())
    assert (response.status, response["etag"], response.body) == (int(status[:3]), "x", b"")
    assert "transfer-encoding" not in response
    client.says(request())
    assert read_request(replica.hears()[-1000:].split(b"\r\n\r\n", 1)[1]).first == "GET / HTTP/1.1"
    replica.says(answer())
    stage.check_idle(counted=2)


@pytest.mark.parametrize("header", ["content-length: 500", "transfer-encoding: chunked", "x: no length at all"])
def test_an_answer_to_head_has_no_body_whatever_it_says(stage: Stage, header: str) -> None:
    client = stage.client()
    client.says(request("HEAD /"))
    replica = stage.accept()
    replica.says(f"HTTP/1.1 200 OK\r\n{header}\r\n\r\n".encode())
    response = read_answer(client.hears(), "HEAD")
    assert response.all("content-length") == (["500"] if "500" in header else [])
    assert not client.closed
    assert replica.closed == ("no length" not in header)  # what it announced may follow all the same
    stage.check_idle(counted=1)


def test_an_answer_in_chunks_passes_through_event_by_event(stage: Stage) -> None:
    client = stage.client()
    client.says(request())
    replica = stage.accept()
    replica.says(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    head = client.hears()
    for event in (b"data: 1\n\n", b"data: 2\n\n"):
        replica.says(b"%x\r\n%b\r\n" % (len(event), event))
        assert client.hears() == b"%x\r\n%b\r\n" % (len(event), event)
    replica.says(b"0\r\nx-sum: 1\r\n\r\n")
    response = read_answer(head + b"0\r\nx-sum: 1\r\n\r\n")
    assert (response["transfer-encoding"], response.trailers) == ("chunked", [("x-sum", "1")])
    assert client.hears() == b"0\r\nx-sum: 1\r\n\r\n"
    assert not replica.closed
    stage.check_idle(counted=1)


def test_an_answer_that_ends_with_the_connection_is_put_in_chunks(stage: Stage) -> None:
    client = stage.client()
    client.says(request())
    replica = stage.accept()
    replica.says(b"HTTP/1.1 200 OK\r\n\r\n", b"hello ", b"world")
    received = client.hears()
    assert not read_answer(received).whole
    replica.ends()
    answered = read_answer(received + client.hears())
    assert (answered.body, answered.whole) == (b"hello world", True)
    assert not client.closed
    client.says(request())
    stage.accept().says(answer())
    stage.check_idle(counted=2)


def test_interim_answers_are_passed_on_but_for_100(stage: Stage) -> None:
    client = stage.client()
    client.says(request())
    replica = stage.accept()
    replica.says(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\nkeep-alive: 5\r\n\r\n")
    replica.says(b"HTTP/1.1 102 Processing\r\n\r\n" + answer(b"ok"))
    responses = read_answers(client.hears())
    assert [(message.status, message.body) for message in responses] == [(103, b""), (102, b""), (200, b"ok")]
    assert responses[0].headers == [("link", "a")]
    stage.check_idle(counted=1)


def test_more_than_it_announced_is_nobodys_answer(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /1") + request("GET /2"))
    replica = stage.accept()
    replica.says(answer(b"one") + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nsmugg")
    assert read_answer(client.hears()).body == b"one"
    assert replica.closed
    stage.accept().says(answer(b"two"))
    assert read_answer(client.hears()).body == b"two"
    stage.check_idle(counted=2)


@pytest.mark.parametrize("more", [b"\r\n", b"\n", b"x", b"HTTP/1.1 200 OK\r\n\r\n", b"0\r\n\r\n"])
def test_more_than_the_last_chunk_is_nobodys_answer(stage: Stage, more: bytes) -> None:
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    replica.says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(b"one") + more)
    heard = client.hears()
    assert client.cut_off or heard.endswith(b"\r\n" + chunked(b"one"))
    assert replica.closed
    stage.check_idle(counted=1)


def test_a_replica_that_speaks_out_of_turn_is_not_used_again(stage: Stage) -> None:
    client = stage.client()
    client.says(request())
    replica = stage.accept()
    replica.says(answer())
    replica.says(answer(b"unasked"))
    assert replica.closed
    client.hears()
    client.says(request())
    stage.accept().says(answer(b"fresh"))
    assert read_answer(client.hears()).body == b"fresh"
    stage.check_idle(counted=2)


def test_what_a_replica_said_unasked_is_not_taken_for_the_next_answer(stage: Stage) -> None:
    client = stage.client()
    client.says(request())
    first = stage.replica()
    first.says(answer())
    client.hears()
    stage.pass_time(0.5)
    first.transport.whisper(answer(b"", status="408 You said nothing"))
    client.says(request())
    second = stage.replica()
    assert second is not first
    second.says(answer(b"fresh"))
    assert read_answer(client.hears()).body == b"fresh"
    stage.check_idle(counted=2)


@pytest.mark.parametrize(
    "nonsense",
    [b"\x16\x03\x01 tls?\r\n\r\n", b"HTTP/1.1 200 OK\r\nx : 1\r\n\r\n", b"HTTP/1.1 200 OK\nx: 1\r\n\r\n"],
)
def test_nonsense_of_a_replica_is_a_502(staged: Callable[..., Stage], nonsense: bytes) -> None:
    stage = staged("models: {'*': {retry: {max_attempts: 1}, replicas: [{url: 'http://a:1'}]}}")
    client = stage.client()
    client.says(request())
    replica = stage.accept()
    replica.says(nonsense)
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (502, "replica_invalid_response")
    assert replica.closed
    assert stage.account().failed == 1
    stage.check_idle(counted=1)


def test_chunks_of_a_request_become_a_length_when_they_are_all_there(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /", "transfer-encoding: chunked") + chunked(b"hello ", b"world"))
    heard = read_request(stage.accept().hears())
    assert (heard.body, heard["content-length"]) == (b"hello world", "11")
    assert "transfer-encoding" not in heard


@pytest.mark.parametrize("pieces", [(), (b"hello",)])
def test_trailers_of_a_request_reach_the_replica(stage: Stage, pieces: tuple[bytes, ...]) -> None:
    client = stage.client()
    client.says(request("POST /", "transfer-encoding: chunked") + chunked(*pieces, trailers=["x-sum: 1"]))
    replica = stage.accept()
    heard = read_request(replica.hears())
    assert heard.whole
    assert (heard.body, heard.trailers) == (b"".join(pieces), [("x-sum", "1")])
    replica.says(answer())
    stage.check_idle(counted=1)


def test_the_names_of_trailers_are_passed_on(stage: Stage) -> None:
    client = stage.client()
    client.says(
        request("POST /", "trailer: x-sum", "transfer-encoding: chunked") + chunked(b"a", trailers=["x-sum: 1"])
    )
    replica = stage.replica()
    assert read_request(replica.hears())["trailer"] == "x-sum"
    head = b"HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n"
    replica.says(head + chunked(b"a", trailers=["x-sum: 1"]))
    response = read_answer(client.hears())
    assert (response["trailer"], response.trailers) == ("x-sum", [("x-sum", "1")])


NO_TRAILERS = [
    *("host", "content-length", "x-forwarded-for", "connection", "steelyard-model", "steelyard-anything", "X-Tenant"),
    *("Authorization", "cookie", "x-api-key", "transfer-encoding", "content-type", "x-forwarded-prefix", "via"),
    *("steelyard_model", "x_forwarded_for", "transfer_encoding", "x_tenant", "x-forwarded_proto", "content_length"),
]


@pytest.mark.parametrize("name", NO_TRAILERS)
def test_a_trailer_says_nothing_that_only_a_head_may_say(staged: Callable[..., Stage], name: str) -> None:
    stage = staged("{tenant_header: x-tenant, models: {'*': {replicas: [{url: 'http://a:1'}]}}}")
    client = stage.client()
    trailers = [f"{name}: 1", "x-stays: 1", "x_stays: 2"]
    client.says(request("POST /", "transfer-encoding: chunked") + chunked(b"a", trailers=trailers))
    assert read_request(stage.replica().hears()).trailers == [("x-stays", "1"), ("x_stays", "2")]


@pytest.mark.parametrize("head", ["trailer: x-stays\r\n", ""])
@pytest.mark.parametrize(
    "name", ["Set-Cookie", "content-type", "Content_Length", "steelyard-replica", "connection", "x_request_id"]
)
def test_a_trailer_of_an_answer_says_nothing_that_only_a_head_may_say(stage: Stage, head: str, name: str) -> None:
    client = stage.client()
    whole = chunked(b"a\r\n0\r\n", b"b", trailers=["x-stays: 0", f"{name}: 0"])
    for cut in (0, *range(1, len(whole))):
        client.says(request())
        replica = stage.replica()
        replica.hears()
        replica.says(f"HTTP/1.1 200 OK\r\n{head}transfer-encoding: chunked\r\n\r\n".encode())
        replica.says(*[piece for piece in (whole[:cut], whole[cut:]) if piece])
        response = read_answer(client.hears())
        assert (response.body, response.trailers, response.whole) == (b"a\r\n0\r\nb", [("x-stays", "0")], True)
    stage.check_idle()


def test_interim_answers_are_bounded_and_clean(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {'*': {retry: {max_attempts: 1}, replicas: [{url: 'http://a:1'}]}}")
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    dirty = b"content-length: 5\r\nkeep-alive: 5\r\nconnection: x-a, close\r\nx-a: 1\r\ntrailer: x\r\n"
    replica.says(b"HTTP/1.1 103 Early Hints\r\nlink: a\r\nsteelyard-replica: evil\r\n" + dirty + b"\r\n")
    assert client.hears() == b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"
    for _ in range(15):
        replica.says(b"HTTP/1.1 102 Processing\r\n\r\n")
    replica.says(answer(b"ok"))
    assert read_answers(client.hears())[-1].body == b"ok"
    client.says(request())
    replica.says(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)
    responses = read_answers(client.hears())
    assert (len(responses), responses[-1].status, responses[-1]["steelyard-reason"]) == (
        17,
        502,
        "replica_invalid_response",
    )
    assert replica.closed


@pytest.mark.parametrize(
    "name", ["X-Forwarded-Prefix", "x-forwarded-ssl", "X_Forwarded_Client_Cert", "x_forwarded-port"]
)
def test_all_that_a_client_says_of_itself_is_dropped(staged: Callable[..., Stage], name: str) -> None:
    stage = staged("{trusted_proxies: [10.0.0.0/8], models: {'*': {replicas: [{url: 'http://a:1'}]}}}")
    for peer, trusted in (("192.0.2.7", False), ("10.0.0.1", True)):
        client = stage.client((peer, 1))
        client.says(request("GET /", f"{name}: 1"))
        replica = stage.replica()
        assert (name.lower() in read_request(replica.hears())) == (trusted and "_" not in name)
        replica.says(answer(b"", "connection: close"))


def test_http_1_0_with_an_empty_host_is_refused(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /", "Host:", version="1.0"))
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (400, "bad_request")
    assert stage.dialling == []


def test_a_request_that_goes_round_is_stopped(stage: Stage) -> None:
    for via in (["1.1 steelyard"] * 3, ["1.1 a, 1.1 b, 1.1 c, 1.1 steelyards, 1.1 d (steelyard)"]):
        client = stage.client()
        client.says(request("GET /", *(f"via: {hop}" for hop in via)))
        replica = stage.replica()
        assert len(read_request(replica.hears()).all("via")) == len(via) + 1
        replica.says(answer(b"", "connection: close"))
    client = stage.client()
    client.says(
        request("GET /", "Via: 1.1 steelyard, 1.0 x, HTTP/1.1 Steelyard", "via: 1.1 steelyard (a), 1.1 steelyard")
    )
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (508, "loop_detected")
    assert stage.dialling == []


def test_the_508_of_a_gateway_behind_is_no_failure_of_it(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {'*': {replicas: [{url: 'http://a:1'}, {url: 'http://b:1'}]}}")
    client = stage.client()
    client.says(request("GET /"))
    stage.replica().says(answer(b"round", status="508 Loop Detected"))
    assert read_answer(client.hears()).body == b"round"
