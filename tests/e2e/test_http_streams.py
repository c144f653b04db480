"""Streams: events leave as they come; upgrades become tunnels, after a real 101 only."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.harness import (
    MIB,
    WAIT_TIMEOUT_SECONDS,
    Serving,
    StubReplica,
    Truncated,
    config,
    new_id,
    nothing_left,
    request,
    scripts,
)

pytestmark = pytest.mark.smoke

UPGRADE = scripts.UPGRADE


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    with Serving(config([stub])) as serving:
        yield serving


class TestEvents:
    @pytest.mark.parametrize("version", ["1.1", "1.0"])
    def test_each_arrives_before_the_next_is_sent(self, gateway: Serving, stub: StubReplica, version: str) -> None:
        gate = new_id("event")
        with gateway.connect() as connection:
            connection.send(request("POST", version=version, script=scripts.sse(5, gate)))
            response = connection.begin()
            assert response.headers["content-type"] == "text/event-stream"
            for number in range(5):
                connection.read_body(response, f"data: {number}\n\n".encode())
                stub.open(f"{gate}-{number + 1}")
            connection.finish(response)
        assert response.body == b"".join(b"data: %d\n\n" % number for number in range(5))

    def test_the_head_arrives_before_the_first_event(self, gateway: Serving, stub: StubReplica) -> None:
        gate = new_id("event")
        script = [
            ["body"],
            ["send", scripts.SSE_HEAD],
            ["gate", gate],
            ["send", scripts.chunk("data: x\n\n") + "0\r\n\r\n"],
        ]
        with gateway.connect() as connection:
            connection.send(request("POST", script=script))
            response = connection.begin()
            stub.open(gate)
            assert connection.finish(response).body == b"data: x\n\n"

    @pytest.mark.parametrize("framing", ["chunked", "until close", "length"])
    def test_in_every_framing(self, gateway: Serving, stub: StubReplica, framing: str) -> None:
        gate, events = new_id("event"), ["data: one\n\n", "data: two\n\n"]
        head, end, last = "HTTP/1.1 200 ok\r\ncontent-type: text/event-stream\r\n", "", ["sleep", 0]
        if framing == "until close":
            last = ["close"]
        elif framing == "chunked":
            head, end, events = f"{head}transfer-encoding: chunked\r\n", "0\r\n\r\n", [scripts.chunk(e) for e in events]
        else:
            head = f"{head}content-length: {sum(map(len, events))}\r\n"
        script = [["body"], ["send", f"{head}\r\n{events[0]}"], ["gate", gate], ["send", events[1] + end], last]
        with gateway.connect() as connection:
            connection.send(request("POST", script=script))
            response = connection.begin()
            connection.read_body(response, b"data: one\n\n")
            stub.open(gate)
            assert connection.finish(response).body == b"data: one\n\ndata: two\n\n"

    def test_the_connection_serves_on_after_a_stream(self, gateway: Serving, stub: StubReplica) -> None:
        gate = new_id("event")
        for number in range(1, 4):
            stub.open(f"{gate}-{number}")
        with gateway.connect() as connection:
            for _ in range(3):
                assert connection.ask("POST", script=scripts.sse(3, gate)).body.count(b"data: ") == 3

    def test_many_streams_at_once(self, gateway: Serving, stub: StubReplica) -> None:
        gate = new_id("event")
        with nothing_left(gateway):
            connections = [gateway.connect() for _ in range(40)]
            for connection in connections:
                connection.send(request("POST", script=scripts.sse(3, gate)))
            responses = [connection.begin() for connection in connections]
            for number in range(3):
                for connection, response in zip(connections, responses, strict=True):
                    connection.read_body(response, f"data: {number}\n\n".encode())
                stub.open(f"{gate}-{number + 1}")
            for connection, response in zip(connections, responses, strict=True):
                connection.finish(response)
                connection.close()


class TestTunnels:
    def test_bytes_go_both_ways_after_101(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        with nothing_left(gateway):
            with gateway.connect() as connection:
                connection.send(request("GET", id=id, headers=UPGRADE, script=scripts.upgrade()))
                response = connection.response()
                assert response.status == 101
                assert response.headers["upgrade"].lower() == "websocket"
                assert "upgrade" in response.headers["connection"].lower()
                for size in (1, 100, 100_000):
                    connection.send(b"\x81" * size)
                    assert connection.read_exactly(size) == b"\x81" * size
            stub.wait_left(id)
        seen = stub.headers(id)
        assert seen["upgrade"].lower() == "websocket"
        assert "upgrade" in seen["connection"].lower()
        assert seen["sec-websocket-key"] == UPGRADE["sec-websocket-key"]

    def test_bytes_that_come_with_the_101_are_the_tunnel_s(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            script = scripts.upgrade(greeting="HTTP/1.1 200 is not read as HTTP\r\n\r\n")
            connection.send(request("GET", headers=UPGRADE, script=script))
            assert connection.response().status == 101
            assert connection.read_exactly(36) == b"HTTP/1.1 200 is not read as HTTP\r\n\r\n"
            connection.send(b"GET / HTTP/1.1\r\n\r\n")
            assert connection.read_exactly(18) == b"GET / HTTP/1.1\r\n\r\n"

    def test_the_replica_ends_it(self, gateway: Serving) -> None:
        script = [*scripts.upgrade()[:1], ["send", "bye"], ["close"]]
        with nothing_left(gateway), gateway.connect() as connection:
            connection.send(request("GET", headers=UPGRADE, script=script))
            assert connection.response().status == 101
            assert connection.wait_closed() == b"bye"

    def test_a_refused_upgrade_is_an_answer_like_any_other(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            response = connection.ask("GET", headers=UPGRADE, script=scripts.plain("no", 426, {"upgrade": "h2c"}))
            assert (response.status, response.body) == (426, b"no")
            assert connection.ask("GET").status == 200

    def test_without_101_nothing_is_a_tunnel(self, gateway: Serving, stub: StubReplica) -> None:
        """What follows a refused upgrade is a request of its own and is read as one."""
        smuggled, after = new_id("smuggled"), new_id()
        with gateway.connect() as connection:
            connection.send(request("GET", headers=UPGRADE, script=scripts.plain("plain 200")))
            assert connection.response().body == b"plain 200"
            if connection.try_send(
                b"GET / HTTP/1.1\r\nhost: x\r\nx-test-id: %s\r\nbad header\r\n\r\n" % smuggled.encode()
            ):
                connection.wait_closed()
        stub.never("request", id=smuggled)
        assert gateway.ask("GET", id=after).status == 200

    def test_a_101_nobody_asked_for_is_a_bad_answer(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            response = connection.ask("GET", script=scripts.upgrade())
            assert response.status == 502  # RFC 9110 15.2.2: only in answer to an Upgrade header

    def test_an_upgrade_with_a_body(self, gateway: Serving, stub: StubReplica) -> None:
        """RFC 9110 7.8: the body comes first, then the new protocol. Who does not take it must not mix the two up."""
        id, headers = new_id(), {"connection": "upgrade", "upgrade": "echo"}
        script = scripts.raw(f"HTTP/1.1 101 Switching\r\n{scripts.fields(headers)}\r\n", ["echo"])
        with gateway.connect() as connection:
            connection.send(request("POST", id=id, headers=headers, body=b"hello", script=script))
            response = connection.response()
            if response.status == 101:
                connection.send(b"tunnel")
                assert connection.read_exactly(6) == b"tunnel"
                assert stub.wait("body", id=id)["length"] == 5
            else:
                assert response.status in (400, 502)

    def test_a_tunnel_has_back_pressure(self, gateway: Serving) -> None:
        """An echo to a client that only writes: nobody keeps all the bytes."""
        size, sent = 64 * MIB, 0

        def pour() -> None:
            nonlocal sent
            for _ in range(size // MIB):
                connection.send(b"x" * MIB)
                sent += MIB

        with nothing_left(gateway):
            before = gateway.memory()
            with gateway.connect(receive_buffer=1 << 16) as connection:
                connection.send(request("GET", headers=UPGRADE, script=scripts.upgrade()))
                assert connection.response().status == 101
                pouring = threading.Thread(target=pour)
                pouring.start()
                back = 0
                while back < size:
                    back += len(connection.read_exactly(min(MIB, size - back)))
                    assert gateway.memory() - before < 48 * MIB
                pouring.join(WAIT_TIMEOUT_SECONDS)
        assert sent == size

    def test_a_tunnel_whose_replica_dies_is_cut(self, gateway: Serving) -> None:
        with StubReplica("mortal") as mortal, Serving(config([mortal])) as own, own.connect() as connection:
            connection.send(request("GET", headers=UPGRADE, script=scripts.upgrade()))
            assert connection.response().status == 101
            connection.send(b"hi")
            assert connection.read_exactly(2) == b"hi"
            mortal.kill()
            connection.wait_closed()

    def test_a_replica_that_leaves_before_its_101(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            connection.send(request("GET", headers=UPGRADE, script=[["close"]]))
            try:
                assert connection.response().status in (502, 503)
            except Truncated as cut:
                pytest.fail(f"no answer at all: {cut}")
