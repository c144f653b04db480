"""Heads that could be read two ways are refused whole: nothing of them reaches a replica, or a client."""

from collections.abc import Callable

import pytest

from steelyard.gateway.http.headers import MalformedMessageError
from steelyard.gateway.http.response_head import MAX_CACHED_STATUS_LINES, StatusLineCache

from ..reading import answer, read_answer, read_request, request
from ..stage import Stage

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FRAMINGS = [
    ("content-length: 5", "transfer-encoding: chunked"),
    ("transfer-encoding: chunked", "content-length: 5"),
    ("content-length: 5", "content-length: 5"),
    ("content-length: 5", "Content-Length: 6"),
    ("content-length: 5, 5",),
    ("content-length: +5",),
    ("content-length: -5",),
    ("content-length: 0x5",),
    ("content-length: 5_0",),
    ("content-length: 5 5",),
    ("content-length:",),
    ("content-length : 5",),
    (" content-length: 5",),
    ("content-length: 99999999999999999999",),
    ("transfer-encoding: chunked", "transfer-encoding: chunked"),
    ("transfer-encoding: chunked, chunked",),
    ("transfer-encoding: gzip, chunked",),
    ("transfer-encoding: chunked, gzip",),
    ("transfer-encoding: identity",),
    ("transfer-encoding: xchunked",),
    ("transfer-encoding:",),
    ("transfer-encoding: chunked;q=1",),
    ("transfer-encoding\t: chunked",),
    ("transfer-encoding: \x0bchunked",),
]
LINES = [
    ("x: a\x00b",),
    ("x: a\rb",),
    ("x: a\nb: c",),
    ("x: a", " folded"),
    ("x",),
    (": x",),
    ("x y: 1",),
    ("x\xff: 1",),
]


@pytest.mark.parametrize("headers", [*FRAMINGS, *LINES])
def test_requests_that_are_refused(stage: Stage, headers: tuple[str, ...]) -> None:
    client = stage.client()
    client.says(request("POST /", *headers) + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n")
    assert read_answer(client.hears()).status == 400
    assert client.transport.eof_heard
    client.says(request("GET /later"))
    assert stage.dialling == []
    stage.check_idle(counted=1)


@pytest.mark.parametrize("headers", [*[f for f in FRAMINGS if f != ("transfer-encoding: identity",)], *LINES])
def test_answers_that_are_refused(staged: Callable[..., Stage], headers: tuple[str, ...]) -> None:
    stage = staged("models: {m: {retry: {max_attempts: 1}, replicas: [{url: 'http://a:1'}]}}")
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    replica.says("\r\n".join(["HTTP/1.1 200 OK", *headers, "", "hello"]).encode("latin-1"))
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (502, "replica_invalid_response")
    assert replica.closed
    assert not client.closed
    stage.check_idle(counted=1)


@pytest.mark.parametrize("hosts", [(), ("host: a", "host: a"), ("host: a", "Host: b")])
def test_there_is_one_host(stage: Stage, hosts: tuple[str, ...]) -> None:
    client = stage.client()
    client.says("\r\n".join(["GET / HTTP/1.1", *hosts, "x: 1", "", ""]).encode())
    assert read_answer(client.hears()).status == 400
    assert stage.dialling == []


@pytest.mark.parametrize("host", ["a b", "a/b", "u@a", "[::1", "a:b", "a:1:2", "a\\b", "a?b", "a#b", "<a>", "\xe9"])
def test_a_host_is_a_host_and_a_port(stage: Stage, host: str) -> None:
    """RFC 9112, 3.2: an invalid value is to be answered with 400."""
    client = stage.client()
    client.says(f"GET / HTTP/1.1\r\nhost: {host}\r\n\r\n".encode("latin-1"))
    assert read_answer(client.hears()).status == 400
    assert stage.dialling == []


@pytest.mark.parametrize("host", ["a", "a:1", "[::1]:8080", "1.2.3.4", "a.b-c_d:65535", "xn--a", "a.", "a:"])
def test_hosts_that_are_fine(stage: Stage, host: str) -> None:
    client = stage.client()
    client.says(f"GET / HTTP/1.1\r\nHost:{host}\r\n\r\n".encode())
    heard = read_request(stage.replica().hears())
    assert (heard["host"], heard["x-forwarded-host"]) == (host, host)


def test_the_host_of_the_target_outranks_the_header(stage: Stage) -> None:
    client = stage.client()
    client.says(b"GET http://real:8080/a?b HTTP/1.1\r\nhost: other\r\n\r\n")
    heard = read_request(stage.replica().hears())
    assert (heard.first, heard.all("host"), heard["x-forwarded-host"]) == (
        *("GET /a?b HTTP/1.1", ["real:8080"], "real:8080"),
    )


@pytest.mark.parametrize("named", ["content-length", "Host", "transfer-encoding", "host, content-length, x"])
def test_framing_cannot_be_named_away(stage: Stage, named: str) -> None:
    client = stage.client()
    client.says(request("POST /", f"connection: {named}", "x: 1", body=b"GET /smuggled HTTP/1.1\r\n\r\n"))
    heard = read_request(stage.replica().hears())
    assert (heard["host"], heard["content-length"]) == ("gateway", "26")
    assert heard.body == b"GET /smuggled HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("kind", ["sized", "chunked"])
def test_a_replica_cannot_name_the_framing_away_either(stage: Stage, kind: str) -> None:
    client = stage.client()
    client.says(request())
    if kind == "sized":
        stage.replica().says(answer(b"hello", "connection: content-length, x-a, x-request-id", "x-a: 1"))
    else:
        head = b"HTTP/1.1 200 OK\r\nconnection: transfer-encoding, x-a\r\nx-a: 1\r\ntransfer-encoding: chunked\r\n\r\n"
        stage.replica().says(head + b"5\r\nhello\r\n0\r\n\r\n")
    response = read_answer(client.hears())
    assert (response.body, response.whole) == (b"hello", True)
    assert "x-a" not in response
    assert not client.closed


@pytest.mark.parametrize(
    "headers", [("connection: x-a, x-b",), ("connection: x-a", "connection: x-b"), ("Connection: X-A,,\tx-b ,",)]
)
def test_everything_that_is_named_is_for_one_hop(stage: Stage, headers: tuple[str, ...]) -> None:
    client = stage.client()
    client.says(request("GET /", *headers, "X-A: 1", "x-b: 2", "x-ab: 3"))
    heard = read_request(stage.replica().hears())
    assert heard["x-ab"] == "3"
    assert heard.all("x-a") == heard.all("x-b") == heard.all("connection") == []
    stage.replica().says(answer(b"", *headers, "X-A: 1", "x-b: 2", "x-ab: 3"))
    response = read_answer(client.hears())
    assert response["x-ab"] == "3"
    assert response.all("x-a") == response.all("x-b") == []


@pytest.mark.parametrize("value", ["close, keep-alive", "keep-alive, close", "Close", "x, close"])
def test_close_is_the_last_word(stage: Stage, value: str) -> None:
    """RFC 9112, 9.3."""
    client = stage.client()
    client.says(request("GET /", f"connection: {value}"))
    stage.replica().says(answer())
    assert read_answer(client.hears())["connection"] == "close"
    assert client.closed


def test_names_are_made_where_there_are_none_and_kept_where_there_are(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /"))
    heard = read_request(stage.replica().hears())
    version, trace, span, flags = heard["traceparent"].split("-")
    assert (version, len(trace), len(span), flags) == ("00", 32, 16, "00")
    assert heard["x-request-id"] == trace
    stage.replica().says(answer())
    assert read_answer(client.hears())["x-request-id"] == trace
    client.says(request("GET /", "X-Request-Id: mine", f"TraceParent: {THEIRS}"))
    heard = read_request(stage.replica().hears())
    assert (heard.all("x-request-id"), heard.all("traceparent")) == (["mine"], [THEIRS])
    stage.replica().says(answer(b"", "x-request-id: the replica's"))
    assert read_answer(client.hears()).all("x-request-id") == ["the replica's"]


@pytest.mark.parametrize("given", ["x-request-id: mine", f"traceparent: {THEIRS}"])
def test_the_name_that_is_missing_is_made(stage: Stage, given: str) -> None:
    client = stage.client()
    client.says(request("GET /", given))
    heard = read_request(stage.replica().hears())
    name, value = given.split(": ")
    assert heard.all(name) == [value]
    assert len(heard.all("x-request-id")) == len(heard.all("traceparent")) == 1
    stage.replica().says(answer())
    assert read_answer(client.hears())["x-request-id"] == heard["x-request-id"]


def test_names_differ(stage: Stage) -> None:
    client = stage.client()
    names = set()
    for _ in range(600):
        client.says(request())
        names.add(read_request(stage.replica().hears())["x-request-id"])
        stage.replica().says(answer())
    assert len(names) == 600


def test_status_lines_are_remembered_within_bounds() -> None:
    statuses = StatusLineCache()
    assert statuses.learn(b"HTTP/1.0 200 OK") == (200, True, b"HTTP/1.1 200 OK")
    assert statuses.learn(b"HTTP/1.1 404") == (404, False, b"HTTP/1.1 404 ")
    assert sorted(statuses.known) == [b"HTTP/1.0 200 OK", b"HTTP/1.1 404"]
    for number in range(3 * MAX_CACHED_STATUS_LINES):
        statuses.learn(b"HTTP/1.1 200 %d" % number)
        assert len(statuses.known) <= MAX_CACHED_STATUS_LINES
    statuses.learn(b"HTTP/1.1 200 " + b"x" * 100_000)
    assert max(map(len, statuses.known)) < 1000


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"HTTP/1.1", b"HTTP/1.1 ", b"HTTP/1.1 20", b"HTTP/1.1 099 X", b"HTTP/1.1 2000", b"HTTP/1.1 2x0 X"),
        *(
            b"HTTP/1.1  200 OK",
            b" HTTP/1.1 200 OK",
            b"http/1.1 200 OK",
            b"HTTP/2 200 OK",
            b"HTTP/1.2 200 OK",
            b"200 OK",
        ),
        *(b"HTTP/1.1 200 a\x00", b"HTTP/1.1 200 a\r", b"HTTP/1.1 200\tOK", b"HTTP/1.1 \xb2\xb2\xb2 OK"),
    ],
)
def test_what_is_no_status_line(line: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        StatusLineCache().learn(line)
