"""Requests whose end could be read in two ways: 400 and close, and nothing of them reaches a replica (RFC 9112)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import Connection, NoAnswer, Response, Serving, StubReplica, config, new_id, nothing_left, request

pytestmark = pytest.mark.smoke

SECOND = "GET /smuggled HTTP/1.1\r\nhost: x\r\nx-test-id: smuggled-%s\r\n\r\n"


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    with Serving(config([stub], limits={"replay_bytes": "1KiB"})) as serving, nothing_left(serving):
        yield serving


def head(*lines: str, first: str = "POST /work HTTP/1.1", host: str = "host: a\r\n") -> str:
    """A head with these lines; `{id}` becomes the id of the attack."""
    return f"{first}\r\n{host}x-test-id: {{id}}\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n"


CHUNKED = "transfer-encoding: chunked"

HEADS = {
    # Two ways to tell the length
    "length and chunked": head("content-length: 5", CHUNKED) + "0\r\n\r\n",
    "chunked and length": head(CHUNKED, "content-length: 5") + "0\r\n\r\n",
    "two lengths": head("content-length: 5", "content-length: 6") + "hello!",
    "the same length twice": head("content-length: 5", "content-length: 5") + "hello",
    "a list of lengths": head("content-length: 5, 6") + "hello!",
    "a list of equal lengths": head("content-length: 5, 5") + "hello",
    # What is no number
    "length +5": head("content-length: +5") + "hello",
    "length -5": head("content-length: -5") + "hello",
    "length 0x5": head("content-length: 0x5") + "hello",
    "length 1_0": head("content-length: 1_0") + "hellohello",
    "length 5 0": head("content-length: 5 0") + "hello",
    "length empty": head("content-length: ") + "hello",
    "length 5.0": head("content-length: 5.0") + "hello",
    "length in other digits": head("content-length: \u00b2") + "he",
    "length beyond 64 bits": head("content-length: 18446744073709551621") + "hello",
    "length of twenty nines": head("content-length: " + "9" * 30) + "hello",
    # Codings
    "chunked twice": head("transfer-encoding: chunked, chunked") + "0\r\n\r\n",
    "chunked in two lines": head(CHUNKED, CHUNKED) + "0\r\n\r\n",
    "chunked then identity": head("transfer-encoding: chunked, identity") + "0\r\n\r\n",
    "chunked and identity in two lines": head(CHUNKED, "transfer-encoding: identity") + "0\r\n\r\n",
    "identity": head("transfer-encoding: identity", "content-length: 5") + "hello",
    "xchunked": head("transfer-encoding: xchunked") + "0\r\n\r\n",
    "chunked with a semicolon": head("transfer-encoding: chunked;q=1") + "0\r\n\r\n",
    "a quoted coding": head('transfer-encoding: "chunked"') + "0\r\n\r\n",
    "an empty coding": head("transfer-encoding: ", "content-length: 5") + "hello",
    "vertical tab before chunked": head("transfer-encoding: \x0bchunked") + "0\r\n\r\n",
    "chunked from an old client": head(CHUNKED, first="POST /work HTTP/1.0") + "0\r\n\r\n",
    # Lines
    "bare LF ends a header": head("a: b\nc: d"),
    "bare LF ends the request line": "POST /work HTTP/1.1\nhost: a\r\nx-test-id: {id}\r\n\r\n",
    "bare LF everywhere": "GET /work HTTP/1.1\nhost: a\nx-test-id: {id}\n\n",
    "bare LF ends the head": "GET /work HTTP/1.1\r\nhost: a\r\nx-test-id: {id}\r\n\n",
    "bare CR in a value": head("a: b\rc: d"),
    "bare CR ends a header": head("a: b\rcontent-length: 5") + "hello",
    "NUL in a value": head("a: b\0c"),
    "NUL in a name": head("a\0b: c"),
    "NUL in the target": head(first="POST /wo\0rk HTTP/1.1"),
    "a folded header": head("a: b", " folded"),
    "a folded header with a tab": head("a: b", "\tfolded"),
    "a folded length": head("content-length:", " 5") + "hello",
    "space before the first header": "POST /work HTTP/1.1\r\n host: a\r\nx-test-id: {id}\r\n\r\n",
    "space before the colon": head("a : b"),
    "space before the colon of a length": head("content-length : 5") + "hello",
    "tab before the colon": head("transfer-encoding\t: chunked") + "0\r\n\r\n",
    "no colon": head("just a line"),
    "no name": head(": value"),
    "a name with a bracket": head("a(b: c"),
    "a name with a high byte": head("caf\xe9: c"),
    "DEL in a value": head("a: b\x7f"),
    "an escape in a value": head("a: b\x1b[31m"),
    # Request lines
    "no version": "GET /work\r\nhost: a\r\nx-test-id: {id}\r\n\r\n",
    "two spaces": head(first="POST  /work HTTP/1.1"),
    "two spaces before the version": head(first="POST /work  HTTP/1.1"),
    "space after the version": head(first="POST /work HTTP/1.1 "),
    "tabs between": head(first="POST\t/work\tHTTP/1.1"),
    "a high byte in the target": head(first="POST /w\xfcrk HTTP/1.1"),
    "a space in the target": head(first="POST /wo rk HTTP/1.1"),
    "version in small letters": head(first="POST /work http/1.1"),
    "version 1.10": head(first="POST /work HTTP/1.10"),
    "version 01.1": head(first="POST /work HTTP/01.1"),
    "version 3.9": head(first="POST /work HTTP/3.9"),
    "another protocol": head(first="POST /work RTSP/1.0"),
    "a method with a bracket": head(first="PO(ST /work HTTP/1.1"),
    "no target": head(first="POST HTTP/1.1"),
    "a target without a slash": head(first="POST work HTTP/1.1"),
    "a TLS hello": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03{id}\r\n\r\n",
    "an HTTP/2 preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    # Hosts
    "no host": head(host=""),
    "two hosts": head("host: b"),
    "two equal hosts": head("host: a"),
    "a host with a space": head(host="host: a b\r\n"),
    "a host with a slash": head(host="host: a/b\r\n"),
    "a host with a comma": head(host="host: a, b\r\n"),
    "a host with a user": head(host="host: user@a\r\n"),
}

CHUNKS = {
    "+5": "+5\r\nhello\r\n0\r\n\r\n",
    "-5": "-5\r\nhello\r\n0\r\n\r\n",
    "0x5": "0x5\r\nhello\r\n0\r\n\r\n",
    "1_0": "1_0\r\nhellohellohello!\r\n0\r\n\r\n",
    "no digits": "\r\nhello\r\n0\r\n\r\n",
    "only an extension": ";a=b\r\nhello\r\n0\r\n\r\n",
    "g": "g\r\nhello\r\n0\r\n\r\n",
    "space before": " 5\r\nhello\r\n0\r\n\r\n",
    "beyond 64 bits": "10000000000000005\r\nhello\r\n0\r\n\r\n",
    "forty digits": "f" * 40 + "\r\nhello\r\n0\r\n\r\n",
    "bare LF after the size": "5\nhello\r\n0\r\n\r\n",
    "bare CR after the size": "5\rhello\r\n0\r\n\r\n",
    "bare LF after the data": "5\r\nhello\n0\r\n\r\n",
    "data longer than its size": "5\r\nhello!\r\n0\r\n\r\n",
    "data shorter than its size": "5\r\nhi\r\n0\r\n\r\n\r\n",
    "bare LF in an extension": "5;a\nb\r\nhello\r\n0\r\n\r\n",
    "CR in an extension": "5;a\rb\r\nhello\r\n0\r\n\r\n",
    "NUL in an extension": "5;a\0b\r\nhello\r\n0\r\n\r\n",
    "bare LF at the end": "5\r\nhello\r\n0\n\n",
    "a trailer without a colon": "5\r\nhello\r\n0\r\njust a line\r\n\r\n",
    "a folded trailer": "5\r\nhello\r\n0\r\na: b\r\n c\r\n\r\n",
    "NUL in a trailer": "5\r\nhello\r\n0\r\na: b\0\r\n\r\n",
}


def attack(gateway: Serving, text: str) -> tuple[str, bytes, Response | None]:
    """Send it with another request right behind it; returns id, all that came back, and the first answer."""
    id = new_id("attack")
    with gateway.connect() as connection:
        connection.send((text.replace("{id}", id) + SECOND % id).encode("latin-1"))
        came = connection.wait_closed()
    response = Response("POST")
    rest = response.feed(came) if came else b""
    return id, rest, response if came else None


def refused(gateway: Serving, response: Response | None, rest: bytes) -> None:
    assert response is not None, "closed without a word"
    assert response.status in (400, 501, 505), response
    assert response.complete or response.framing == "close"
    assert rest == b"", "what came behind was answered too"
    assert gateway.ask("GET").status == 200


def untouched(stub: StubReplica, id: str) -> None:
    stub.never("request", id=id)
    stub.never("request", id=f"smuggled-{id}")


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_is_ambiguous(gateway: Serving, stub: StubReplica, name: str) -> None:
    id, rest, response = attack(gateway, HEADS[name])
    refused(gateway, response, rest)
    untouched(stub, id)


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_that_are_ambiguous(gateway: Serving, stub: StubReplica, name: str) -> None:
    id, rest, response = attack(gateway, head(CHUNKED) + CHUNKS[name])
    refused(gateway, response, rest)
    untouched(stub, id)


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks_that_turn_bad_when_the_replica_has_the_first(gateway: Serving, stub: StubReplica, name: str) -> None:
    """Too late to forward nothing; but it is never completed, and the replica's connection is not used again."""
    id = new_id("attack")
    with gateway.connect() as connection:
        first = f"2000\r\n{'x' * 0x2000}\r\n"  # more than is kept, so it is on its way
        connection.send((head(CHUNKED) + first).replace("{id}", id).encode("latin-1"))
        seen = stub.wait("request", id=id)
        connection.send((CHUNKS[name] + SECOND % id).encode("latin-1"))
        came = connection.wait_closed()
    if came:
        response = Response("POST")
        assert response.feed(came) == b""
        assert response.status == 400
    stub.never("body", id=id)
    stub.wait_left(id)
    stub.never("request", id=f"smuggled-{id}")
    assert [event["id"] for event in stub.of("request", conn=seen["conn"])][-1] == id


@pytest.mark.parametrize("name", ["length +5", "chunked twice", "space before the colon", "two hosts"])
def test_byte_by_byte_makes_no_difference(gateway: Serving, stub: StubReplica, name: str) -> None:
    id = new_id("attack")
    with gateway.connect() as connection:
        for byte in HEADS[name].replace("{id}", id).encode("latin-1"):
            if not connection.try_send(bytes([byte])):
                break
        came = connection.wait_closed()
    assert came.startswith(b"HTTP/1.1 400 "), came[:100]
    untouched(stub, id)


def test_a_good_request_before_a_bad_one_is_answered_first(gateway: Serving, stub: StubReplica) -> None:
    good, bad = new_id(), new_id("attack")
    with gateway.connect() as connection:
        connection.send(request("POST", id=good, body=b"x") + HEADS["two lengths"].replace("{id}", bad).encode())
        assert f'"{good}"'.encode() in connection.response().body
        assert connection.response().status == 400
        assert connection.wait_closed() == b""
    untouched(stub, bad)


def test_the_rest_of_an_attack_is_not_kept(gateway: Serving) -> None:
    """Who goes on sending after its 400 cannot fill the memory."""
    before = gateway.memory()
    with gateway.connect() as connection:
        connection.send(head("content-length: +5").replace("{id}", "x").encode())
        for _ in range(64):
            if not connection.try_send(b"x" * (1 << 20)):
                break
        connection.wait_closed()
    assert gateway.memory() - before < 32 << 20


@pytest.mark.parametrize("first", ["CONNECT 10.0.0.1:22 HTTP/1.1", "CONNECT model.test:80 HTTP/1.1"])
def test_it_is_no_open_proxy(gateway: Serving, stub: StubReplica, first: str) -> None:
    id = new_id("attack")
    with gateway.connect() as connection:
        connection.send(head(first=first).replace("{id}", id).encode())
        try:
            assert connection.response("GET").status in (400, 403, 404, 405, 501)
        except NoAnswer:
            pytest.fail("closed without a word")
    stub.never("request", id=id)


def test_a_whole_url_as_target_does_not_choose_the_upstream(gateway: Serving, stub: StubReplica) -> None:
    """RFC 9112 3.2.2: it is taken, its host goes before the Host header; the replica stays the configured one."""
    id = new_id()
    with StubReplica("elsewhere") as elsewhere, Connection(gateway.address) as connection:
        target = f"http://127.0.0.1:{elsewhere.port}/work?x=1"
        connection.send(f"GET {target} HTTP/1.1\r\nhost: ignored.test\r\nx-test-id: {id}\r\n\r\n".encode())
        response = connection.response()
        assert elsewhere.of("request") == []
        if response.status == 200:
            seen = stub.request(id)
            assert seen["target"] in ("/work?x=1", target)
            assert "ignored.test" not in dict(map(tuple, seen["headers"])).values()
        else:
            assert response.status == 400
