"""What a proxy must not pass on, and must not go on with: as bytes on a real socket, with real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import Serving, StubReplica, config, new_id, request
from tests.harness.processes import free_port
from tests.harness.replicas.scripts import chunked, raw


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    with Serving(config([stub], tenant_header="x-tenant")) as serving:
        yield serving


def test_trailers_of_a_request_are_clean(gateway: Serving, stub: StubReplica) -> None:
    id = new_id()
    names = ("Authorization", "X-Tenant", "x_tenant", "steelyard_priority", "content-length", "x-forwarded-ssl")
    lines = "".join(f"{name}: 1\r\n" for name in names)
    with gateway.connect() as connection:
        head = f"POST /work HTTP/1.1\r\nhost: a\r\nx-test-id: {id}\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.send(f"{head}1\r\na\r\n0\r\n{lines}x-sum: 7\r\n\r\n".encode())
        assert connection.response("POST").status == 200
    assert stub.wait("body", id=id)["length"] == 1
    stub.sync()
    assert stub.misdeeds == []


def test_trailers_of_an_answer_are_clean(gateway: Serving) -> None:
    for announced in ({"trailer": "x-sum"}, {}):
        script = chunked(
            "one", headers=announced, trailers={"Set-Cookie": "a=b", "steelyard_replica": "x", "x-sum": "7"}
        )
        with gateway.connect() as connection:
            connection.send(request("GET", script=script, headers={"connection": "close"}))
            heard = connection.wait_closed()
        assert heard.endswith(b"0\r\nx-sum: 7\r\n\r\n")


def test_interim_answers_without_end_are_a_502(gateway: Serving) -> None:
    response = gateway.ask("POST", script=raw("HTTP/1.1 102 Processing\r\nkeep-alive: 5\r\n\r\n" * 1000))
    assert (response.status, response.headers["steelyard-reason"]) == (502, "replica_invalid_response")


def test_http_1_0_with_an_empty_host(gateway: Serving, stub: StubReplica) -> None:
    id = new_id()
    with gateway.connect() as connection:
        connection.send(f"GET /work HTTP/1.0\r\nHost:\r\nx-test-id: {id}\r\n\r\n".encode())
        assert connection.wait_closed().startswith(b"HTTP/1.1 400 ")
    stub.never("request", id=id)


def test_two_gateways_that_forward_to_each_other() -> None:
    ports = free_port(), free_port()
    settings = [
        config({"*": {"replicas": [{"url": f"http://127.0.0.1:{there}"}]}}, listen=f"127.0.0.1:{here}")
        for here, there in (ports, ports[::-1])
    ]
    with Serving(settings[0]) as one, Serving(settings[1]):
        response = one.ask("GET")
        assert response.status == 508
        assert b"loop_detected" in response.body  # a gateway takes out what only it may say of its own answers
