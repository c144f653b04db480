"""Headers: what is removed, what is added, who is believed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.harness import Serving, StubReplica, config, new_id, scripts

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
SPOOFED = {"x-forwarded-for": "6.6.6.6", "x-forwarded-proto": "https", "x-forwarded-host": "evil.test"}


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    with Serving(config([stub])) as serving:
        yield serving


@pytest.fixture(scope="module")
def trusting(stub: StubReplica) -> Iterator[Serving]:
    """Believes what clients on this machine say of those before them."""
    with Serving(config([stub], trusted_proxies=["127.0.0.0/8"])) as serving:
        yield serving


def sent(gateway: Serving, stub: StubReplica, **headers: str) -> dict[str, str]:
    """What the replica saw of a request with these headers."""
    id = new_id()
    assert gateway.ask("POST", id=id, headers={n.replace("_", "-"): v for n, v in headers.items()}).status == 200
    return stub.headers(id)


class TestRequests:
    def test_end_to_end_headers_are_passed_on_as_they_are(self, gateway: Serving, stub: StubReplica) -> None:
        values = {
            "authorization": "Bearer secret",
            "accept": "*/*, text/event-stream",
            "cookie": "a=1; b=2",
            "x-odd": "tabs\tand  spaces, \x80\xff high bytes",
            "x-empty": "",
            "content-type": "application/json; charset=utf-8",
            "user-agent": "test/1.0 (a; b)",
        }
        seen = sent(gateway, stub, **values)
        assert {name: seen.get(name) for name in values} == values

    def test_repeated_headers_keep_their_order(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        with gateway.connect() as connection:
            connection.send(
                f"GET / HTTP/1.1\r\nHost: a\r\nX-Many: 1\r\nX-Test-Id: {id}\r\nx-many: 2\r\nX-MANY: 3\r\n\r\n".encode()
            )
            assert connection.response().status == 200
        assert [value for name, value in stub.request(id)["headers"] if name == "x-many"] == ["1", "2", "3"]

    @pytest.mark.parametrize("name", ["keep-alive", "proxy-connection", "te", "x-nominated"])
    def test_hop_by_hop_headers_end_here(self, gateway: Serving, stub: StubReplica, name: str) -> None:
        seen = sent(gateway, stub, **{name: "gzip", "connection": f"X-Nominated, keep-alive, {name}", "x-kept": "1"})
        assert name not in seen
        assert "x-nominated" not in seen.get("connection", "").lower()
        assert seen["x-kept"] == "1"

    def test_an_upgrade_not_asked_for_by_connection_is_not_passed_on(self, gateway: Serving, stub: StubReplica) -> None:
        assert "upgrade" not in sent(gateway, stub, upgrade="websocket")  # RFC 9110 7.8

    def test_te_may_only_say_trailers(self, gateway: Serving, stub: StubReplica) -> None:
        assert sent(gateway, stub, te="trailers, gzip;q=0.5", connection="te").get("te", "trailers") == "trailers"

    def test_via_is_added_to(self, gateway: Serving, stub: StubReplica) -> None:
        assert re.fullmatch(r"1\.1 \S+", sent(gateway, stub)["via"])  # RFC 9110 7.6.3
        assert re.fullmatch(r"1\.0 fred, 1\.1 \S+", sent(gateway, stub, via="1.0 fred")["via"])

    def test_forwarded_headers_are_made(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        gateway.ask("GET", id=id, host="models.example")
        seen = stub.headers(id)
        assert seen["x-forwarded-for"] == "127.0.0.1"
        assert seen["x-forwarded-proto"] == "http"
        assert seen["x-forwarded-host"] == "models.example"

    def test_strangers_are_not_believed(self, gateway: Serving, stub: StubReplica) -> None:
        seen = sent(gateway, stub, **SPOOFED, forwarded="for=6.6.6.6;host=evil.test")
        assert seen["x-forwarded-for"] == "127.0.0.1"
        assert seen["x-forwarded-proto"] == "http"
        assert seen["x-forwarded-host"] == "model.test"
        assert "6.6.6.6" not in seen.get("forwarded", "")

    def test_trusted_proxies_are_believed_and_added_to(self, trusting: Serving, stub: StubReplica) -> None:
        seen = sent(trusting, stub, **SPOOFED)
        assert re.sub(r"\s", "", seen["x-forwarded-for"]) == "6.6.6.6,127.0.0.1"
        assert seen["x-forwarded-proto"] == "https"
        assert seen["x-forwarded-host"] == "evil.test"

    def test_a_trusted_proxy_that_says_nothing(self, trusting: Serving, stub: StubReplica) -> None:
        seen = sent(trusting, stub)
        assert (seen["x-forwarded-for"], seen["x-forwarded-proto"]) == ("127.0.0.1", "http")

    def test_a_request_id_is_made(self, gateway: Serving, stub: StubReplica) -> None:
        ids = {sent(gateway, stub)["x-request-id"] for _ in range(5)}
        assert len(ids) == 5
        assert all(len(id) >= 8 for id in ids)

    def test_a_request_id_is_passed_on(self, gateway: Serving, stub: StubReplica) -> None:
        assert sent(gateway, stub, x_request_id="mine-42")["x-request-id"] == "mine-42"

    def test_a_trace_is_begun(self, gateway: Serving, stub: StubReplica) -> None:
        traces = {sent(gateway, stub)["traceparent"] for _ in range(5)}
        assert all(TRACEPARENT.fullmatch(trace) for trace in traces)
        assert len({trace.split("-")[1] for trace in traces}) == 5

    def test_a_trace_goes_on(self, gateway: Serving, stub: StubReplica) -> None:
        seen = sent(gateway, stub, traceparent=TRACE, tracestate="vendor=1")
        assert TRACEPARENT.fullmatch(seen["traceparent"])
        assert seen["traceparent"].split("-")[1] == TRACE.split("-")[1]
        assert seen["tracestate"] == "vendor=1"


class TestAnswers:
    def test_who_answered_and_how_long_it_took(self, gateway: Serving) -> None:
        response = gateway.ask("POST")
        assert response.headers["steelyard-replica"] == "a"
        assert re.search(r"queue;dur=[0-9.]+", response.headers["server-timing"])

    def test_the_replica_s_own_timing_is_kept(self, gateway: Serving) -> None:
        timing = gateway.ask("POST", script=scripts.plain("ok", headers={"server-timing": "db;dur=53"})).headers
        assert "db;dur=53" in timing["server-timing"]
        assert "queue;dur=" in timing["server-timing"]

    def test_via_is_added(self, gateway: Serving) -> None:
        response = gateway.ask("POST", script=scripts.plain("ok", headers={"via": "1.0 engine"}))
        assert re.fullmatch(r"1\.0 engine, 1\.1 \S+", response.headers["via"])

    def test_hop_by_hop_headers_end_here(self, gateway: Serving) -> None:
        headers = {"connection": "x-internal, keep-alive", "keep-alive": "timeout=5", "x-internal": "1", "x-kept": "2"}
        response = gateway.ask(
            "POST", script=scripts.plain("ok", headers={**headers, "proxy-connection": "keep-alive"})
        )
        assert response.headers["x-kept"] == "2"
        assert {"keep-alive", "x-internal", "proxy-connection"} & set(response.headers) == set()
        assert "x-internal" not in response.headers.get("connection", "")

    def test_cookies_stay_apart(self, gateway: Serving) -> None:
        text = "HTTP/1.1 200 ok\r\nset-cookie: a=1, x\r\nset-cookie: b=2\r\ncontent-length: 0\r\n\r\n"
        fields = gateway.ask("POST", script=scripts.raw(text)).fields
        assert [value for name, value in fields if name == "set-cookie"] == ["a=1, x", "b=2"]

    def test_the_request_id_comes_back(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        response = gateway.ask("POST", id=id)
        assert (
            response.headers.get("x-request-id", stub.headers(id)["x-request-id"]) == stub.headers(id)["x-request-id"]
        )
        assert gateway.ask("POST", headers={"x-request-id": "mine-43"}).headers.get("x-request-id") == "mine-43"

    def test_a_replica_cannot_speak_for_the_gateway(self, gateway: Serving) -> None:
        response = gateway.ask("POST", script=scripts.plain("ok", headers={"steelyard-replica": "somebody-else"}))
        assert response.headers["steelyard-replica"] == "a"
