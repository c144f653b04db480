"""Headers made to deceive: nominated away, doubled, forged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import Serving, StubReplica, config, new_id, request

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    with Serving(config([stub], tenant_header="x-tenant")) as serving:
        yield serving


@pytest.mark.parametrize(
    "written", ["authorization", "Authorization", "close, AUTHORIZATION", "keep-alive,,authorization"]
)
def test_a_nominated_header_is_removed_or_the_request_refused(
    gateway: Serving, stub: StubReplica, written: str
) -> None:
    id = new_id()
    response = gateway.ask("POST", id=id, headers={"connection": written, "authorization": "Bearer x", "x-kept": "1"})
    if response.status == 200:  # RFC 9110 7.6.1
        assert "authorization" not in stub.headers(id)
        assert stub.headers(id)["x-kept"] == "1"
    else:
        assert response.status == 400
        stub.never("request", id=id)


def test_nominated_over_several_lines(gateway: Serving, stub: StubReplica) -> None:
    id = new_id()
    with gateway.connect() as connection:
        connection.send(
            f"GET / HTTP/1.1\r\nHost: a\r\nX-Test-Id: {id}\r\nX-One: 1\r\nX-Two: 2\r\n"
            "Connection: keep-alive\r\nConnection: X-One\r\nconnection: x-two\r\n\r\n".encode()
        )
        assert connection.response().status == 200
    assert {"x-one", "x-two"} & set(stub.headers(id)) == set()


@pytest.mark.parametrize("name", ["content-length", "transfer-encoding", "host", "connection"])
def test_framing_cannot_be_nominated_away(gateway: Serving, stub: StubReplica, name: str) -> None:
    id, smuggled = new_id(), new_id("smuggled")
    inner = request("GET", id=smuggled)
    if name == "transfer-encoding":
        whole = request("POST", id=id, chunks=[inner], headers={"connection": name})
    else:
        whole = request("POST", id=id, body=inner, headers={"connection": name})
    with gateway.connect() as connection:
        connection.send(whole)
        response = connection.response()
    assert response.status in (200, 400)
    stub.never("request", id=smuggled)
    if response.status == 200:
        assert stub.wait("body", id=id)["length"] == len(inner)


@pytest.mark.parametrize("name", ["x-forwarded-for", "x-forwarded-proto", "via", "x-request-id", "traceparent"])
def test_what_the_gateway_adds_cannot_be_nominated_away(gateway: Serving, stub: StubReplica, name: str) -> None:
    id = new_id()
    response = gateway.ask("POST", id=id, headers={"connection": name})
    assert response.status in (200, 400)
    if response.status == 200:
        assert stub.headers(id)[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Forwarded-For", "6.6.6.6"),
        ("x-FORWARDED-for", "6.6.6.6, 127.0.0.1"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.test"),
        ("Forwarded", "for=6.6.6.6;proto=https;host=evil.test"),
    ],
)
def test_forged_forwarded_headers(gateway: Serving, stub: StubReplica, name: str, value: str) -> None:
    id = new_id()
    with gateway.connect() as connection:
        connection.send(
            f"GET / HTTP/1.1\r\nHost: a.test\r\nX-Test-Id: {id}\r\n{name}: {value}\r\n{name}: {value}\r\n\r\n".encode()
        )
        assert connection.response().status == 200
    seen = stub.headers(id)
    assert (seen["x-forwarded-for"], seen["x-forwarded-proto"], seen["x-forwarded-host"]) == (
        "127.0.0.1",
        "http",
        "a.test",
    )
    assert "6.6.6.6" not in seen.get("forwarded", "")


def test_underscores_do_not_stand_for_dashes(gateway: Serving, stub: StubReplica) -> None:
    """Some servers read `X_Forwarded_For` as `X-Forwarded-For`; it must not slip through as one more."""
    id = new_id()
    gateway.ask("GET", id=id, headers={"content_length": "5", "transfer_encoding": "chunked"})
    seen = stub.headers(id)
    assert seen.get("content-length", "0") == "0"
    assert "transfer-encoding" not in seen


@pytest.mark.parametrize("value", ["a b", "x" * 5000, "\xff\xfe", "id,id", '"quoted"', "../../etc/passwd"])
def test_odd_request_ids(gateway: Serving, stub: StubReplica, value: str) -> None:
    """Passed on or replaced, but never two of them, and never a way to write into logs or headers."""
    id = new_id()
    response = gateway.ask("GET", id=id, headers={"x-request-id": value})
    assert response.status in (200, 400)
    if response.status == 200:
        assert len([1 for name, _ in stub.request(id)["headers"] if name == "x-request-id"]) == 1


@pytest.mark.parametrize(
    "value",
    [
        "nonsense",
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "ff-x",
    ],
)
def test_odd_traces_are_begun_anew(gateway: Serving, stub: StubReplica, value: str) -> None:
    id = new_id()
    gateway.ask("GET", id=id, headers={"traceparent": value})
    seen = stub.headers(id)["traceparent"]
    assert "," not in seen
    assert seen != value


def test_a_client_cannot_name_its_replica(gateway: Serving) -> None:
    response = gateway.ask("GET", headers={"steelyard-replica": "evil"})
    assert response.headers["steelyard-replica"] == "a"
