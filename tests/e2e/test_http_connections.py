"""Connections of clients: kept alive, pipelined, HTTP/1.0, closed when said so."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.harness import Serving, StubReplica, config, new_id, request, scripts


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    with Serving(config([stub], timeouts={"replica_idle": "60s"})) as serving:
        yield serving


def test_one_request_goes_through(gateway: Serving, stub: StubReplica) -> None:
    response = gateway.ask("POST", "/any/path?with=query&a=%2F", id="first", body=b"hello")
    assert response.status == 200
    assert json.loads(response.body) == {"replica": "a", "id": "first"}
    seen = stub.request("first")
    assert (seen["method"], seen["target"], seen["version"]) == ("POST", "/any/path?with=query&a=%2F", "1.1")
    assert stub.wait("body", id="first")["length"] == 5


def test_a_connection_serves_many_requests(gateway: Serving) -> None:
    with gateway.connect() as connection:
        for number in range(20):
            id = new_id()
            response = connection.ask("POST", id=id, body=b"x" * number)
            assert response.status == 200
            assert json.loads(response.body)["id"] == id


def test_connections_to_the_replica_are_kept_too(gateway: Serving, stub: StubReplica) -> None:
    with gateway.connect() as connection:
        ids = [new_id() for _ in range(10)]
        for id in ids:
            assert connection.ask("POST", id=id).status == 200
    assert len({stub.request(id)["conn"] for id in ids}) == 1


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_methods_are_passed_on(gateway: Serving, stub: StubReplica, method: str) -> None:
    id = new_id()
    assert gateway.ask(method, id=id).status == 200
    assert stub.request(id)["method"] == method


def test_the_host_the_client_asked_for_reaches_the_replica(gateway: Serving, stub: StubReplica) -> None:
    id = new_id()
    gateway.ask("GET", id=id, host="models.example:8443")
    headers = stub.headers(id)
    assert "models.example:8443" in (headers["host"], headers.get("x-forwarded-host"))


def test_close_is_honoured(gateway: Serving) -> None:
    with gateway.connect() as connection:
        response = connection.ask("POST", headers={"connection": "close"})
        assert response.status == 200
        assert response.headers.get("connection", "").lower() == "close"
        assert connection.wait_closed() == b""


def test_a_replica_that_closes_does_not_close_the_client(gateway: Serving) -> None:
    closing = scripts.raw("HTTP/1.1 200 ok\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", ["close"])
    with gateway.connect() as connection:
        for _ in range(3):
            response = connection.ask("POST", script=closing)
            assert response.body == b"ok"
            assert "close" not in response.headers.get("connection", "")


def test_a_request_in_many_small_pieces(gateway: Serving, stub: StubReplica) -> None:
    id = new_id()
    with gateway.connect() as connection:
        for byte in request("POST", id=id, body=b"0123456789"):
            connection.send(bytes([byte]))
        assert connection.response().status == 200
    assert stub.wait("body", id=id)["length"] == 10


def test_empty_lines_before_a_request_are_skipped(gateway: Serving) -> None:
    with gateway.connect() as connection:  # RFC 9112 2.2
        connection.send(b"\r\n" + request("GET"))
        assert connection.response().status == 200


class TestPipelining:
    def test_answers_come_in_the_order_of_the_requests(self, gateway: Serving) -> None:
        ids = [new_id() for _ in range(6)]
        delays = [0.15, 0.0, 0.1, 0.0, 0.05, 0.0]
        requests = [
            request("POST", id=id, script=scripts.slow(delay), body=b"body" * place)
            for place, (id, delay) in enumerate(zip(ids, delays, strict=True))
        ]
        with gateway.connect() as connection:
            connection.send(b"".join(requests))
            answers = [json.loads(connection.response().body)["id"] for _ in ids]
        assert answers == ids

    def test_more_than_are_read_ahead(self, gateway: Serving) -> None:
        ids = [new_id() for _ in range(60)]
        with gateway.connect() as connection:
            connection.send(b"".join(request("GET", id=id) for id in ids))
            assert [json.loads(connection.response().body)["id"] for _ in ids] == ids

    def test_different_framings_one_after_another(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            connection.send(
                request("GET", script=scripts.chunked("one", "two"))
                + request("HEAD", script=scripts.bare(200, {"content-length": "5"}))
                + request("GET", script=scripts.bare(204))
                + request("POST", chunks=[b"abc"], script=scripts.until_close("three"))
                + request("GET", script=scripts.bare(304, {"etag": '"x"'}))
                + request("GET", script=scripts.plain("four"))
            )
            methods = ["GET", "HEAD", "GET", "POST", "GET", "GET"]
            answers = []
            for method in methods:
                answers.append(connection.response(method))
                if answers[-1].framing == "close":
                    break
        assert [bytes(a.body) for a in answers] == [b"onetwo", b"", b"", b"three", b"", b"four"][: len(answers)]
        assert len(answers) in (4, 6)  # an answer without length may end the connection, or be chunked

    def test_nothing_after_close_is_answered(self, gateway: Serving, stub: StubReplica) -> None:
        after = new_id()
        with gateway.connect() as connection:
            connection.send(request("GET", headers={"connection": "close"}) + request("GET", id=after))
            assert connection.response().status == 200
            assert connection.wait_closed() == b""
        stub.never("request", id=after)


class TestOldClients:
    def test_an_http_1_0_client_is_answered_and_closed(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            response = connection.ask("GET", version="1.0")
            assert response.status == 200
            assert response.framing == "length"
            connection.wait_closed()

    def test_it_may_ask_to_stay(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            response = connection.ask("GET", version="1.0", headers={"connection": "keep-alive"})
            assert response.status == 200
            if response.headers.get("connection", "").lower() == "keep-alive":
                assert connection.ask("GET", version="1.0").status == 200
            connection.wait_closed()

    def test_it_never_gets_chunks(self, gateway: Serving) -> None:
        script = scripts.chunked("one", "two", trailers={"x-sum": "6"})
        with gateway.connect() as connection:
            response = connection.ask("GET", version="1.0", script=script)  # a chunked one would be a BadAnswer
        assert response.body == b"onetwo"

    def test_nor_an_interim_answer(self, gateway: Serving) -> None:
        hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
        script = scripts.raw(f"{hints}HTTP/1.1 200 ok\r\ncontent-length: 2\r\n\r\nok")
        response = gateway.ask("GET", version="1.0", script=script)
        assert response.informational == []  # RFC 9110 15.2
        assert response.body == b"ok"

    def test_nor_100_continue(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            connection.send(request("POST", version="1.0", body=b"abc", headers={"expect": "100-continue"}))
            assert connection.response().informational == []  # RFC 9110 10.1.1

    def test_without_a_host(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            connection.send(b"GET /old HTTP/1.0\r\n\r\n")
            assert connection.response().status == 200

    def test_the_answer_to_a_new_client_is_http_1_1_though_the_replica_is_old(self, gateway: Serving) -> None:
        response = gateway.ask("GET", script=scripts.raw("HTTP/1.0 200 ok\r\ncontent-length: 2\r\n\r\nok", ["close"]))
        assert response.version == "1.1"  # RFC 9110 2.5: the version is the sender's own
        assert response.body == b"ok"
