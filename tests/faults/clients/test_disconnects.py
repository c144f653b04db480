"""Clients that give up: the replica is told by its connection, the slot and the memory are free at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.harness import (
    MIB,
    Connection,
    Ledger,
    Serving,
    StubReplica,
    config,
    model,
    new_id,
    nothing_left,
    request,
    scripts,
    slots_free,
    wait_until,
)

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    """One slot: if it leaks, nothing goes any more."""
    settings = config({"*": model(stub, concurrency=1)}, limits={"replay_bytes": "1MiB"})
    with Serving(settings) as serving, nothing_left(serving):
        yield serving


def leave(connection: Connection, how: str) -> None:
    connection.reset() if how == "reset" else connection.close()


@pytest.mark.parametrize("how", ["close", "reset"])
class TestOneSlot:
    def test_in_the_middle_of_the_head(self, gateway: Serving, stub: StubReplica, how: str) -> None:
        id = new_id()
        connection = gateway.connect()
        connection.send(request("POST", id=id)[:40])
        leave(connection, how)
        slots_free(gateway, stub)
        stub.never("request", id=id)

    @pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
    def test_in_the_middle_of_the_body(self, gateway: Serving, stub: StubReplica, how: str, chunked: bool) -> None:
        id = new_id()
        connection = gateway.connect()
        headers = {"transfer-encoding": "chunked"} if chunked else {"content-length": "30000000"}
        connection.send(request("POST", id=id, headers=headers))
        body = b"%x\r\n%s\r\n" % (20_000_000, b"x" * 20_000_000) if chunked else b"x" * 20_000_000
        sending = threading.Thread(target=connection.try_send, args=(body,))
        sending.start()
        stub.wait("request", id=id)
        sending.join(30)
        leave(connection, how)
        stub.wait_left(id)
        slots_free(gateway, stub)
        stub.never("body", id=id), "half a body was passed off as a whole one"

    def test_before_the_answer(self, gateway: Serving, stub: StubReplica, how: str) -> None:
        id = new_id()
        connection = gateway.connect()
        connection.send(request("POST", id=id, script=scripts.silent()))
        stub.wait("body", id=id)
        leave(connection, how)
        stub.wait_left(id)
        slots_free(gateway, stub)

    def test_in_the_middle_of_a_stream(self, gateway: Serving, stub: StubReplica, how: str) -> None:
        id = new_id()
        connection = gateway.connect()
        connection.send(request("POST", id=id, script=scripts.endless(new_id("never"))))
        connection.read_body(connection.begin(), b"data: 0\n\n")
        leave(connection, how)
        stub.wait_left(id)
        slots_free(gateway, stub)

    def test_in_the_middle_of_a_large_answer(self, gateway: Serving, stub: StubReplica, how: str) -> None:
        id = new_id()
        connection = gateway.connect(receive_buffer=1 << 16)
        connection.send(request("POST", id=id, script=scripts.large(200 * MIB)))
        connection.begin()
        leave(connection, how)
        stub.wait_left(id)
        slots_free(gateway, stub)
        assert stub.of("filled", id=id, sent=200 * MIB) == []

    def test_while_it_waits(self, gateway: Serving, stub: StubReplica, how: str) -> None:
        gate, running, waiting = new_id("gate"), new_id(), new_id()
        with gateway.connect() as first:
            first.send(request("POST", id=running, script=scripts.held(gate)))
            stub.wait("waiting", id=running)
            second = gateway.connect()
            second.send(request("POST", id=waiting, body=b"x" * 1000))
            assert second.quiet(0.2)
            leave(second, how)
            assert first.quiet(0.2)
            stub.open(gate)
            assert first.response().status == 200
        slots_free(gateway, stub)
        stub.never("request", id=waiting)

    def test_with_requests_behind_it(self, gateway: Serving, stub: StubReplica, how: str) -> None:
        first, second = new_id(), new_id()
        connection = gateway.connect()
        connection.send(request("POST", id=first, script=scripts.silent()) + request("POST", id=second))
        stub.wait("body", id=first)
        leave(connection, how)
        stub.wait_left(first)
        slots_free(gateway, stub)

    def test_from_a_tunnel(self, gateway: Serving, stub: StubReplica, how: str) -> None:
        id = new_id()
        connection = gateway.connect()
        connection.send(request("GET", id=id, headers=scripts.UPGRADE, script=scripts.upgrade()))
        assert connection.response().status == 101
        leave(connection, how)
        stub.wait_left(id)
        slots_free(gateway, stub)

    def test_while_the_replica_s_body_is_unread(self, gateway: Serving, stub: StubReplica, how: str) -> None:
        """It leaves as the replica is paused: nobody is left to wake it up."""
        id, gate = new_id(), new_id("gate")
        connection = gateway.connect()
        connection.send(
            request("POST", id=id, headers={"content-length": str(64 * MIB)}, script=[["gate", gate], ["body"]])
        )
        sending = threading.Thread(target=connection.try_send, args=(b"x" * (64 * MIB),))
        sending.start()
        stub.wait("waiting", id=id)
        connection.half_close()  # wakes the thread that sends
        sending.join(30)
        leave(connection, how)
        stub.open(gate)
        stub.wait_left(id)
        slots_free(gateway, stub)


def test_hundreds_leave_at_once(gateway: Serving, stub: StubReplica) -> None:
    with nothing_left(gateway, memory=32 * MIB):
        connections = [gateway.connect() for _ in range(200)]
        ids = [new_id() for _ in connections]
        for id, connection in zip(ids, connections, strict=True):
            connection.send(request("POST", id=id, script=scripts.slow(0.01), body=b"x" * 10_000))
        for number, connection in enumerate(connections):
            leave(connection, "reset" if number % 2 else "close")
    wait_until(lambda: len(stub.of("done")) == len(stub.of("request")), "the replica still works for nobody")
    slots_free(gateway, stub)


def test_leaving_during_a_retry() -> None:
    """The first replica fails while the client leaves: nobody runs it again for nobody."""
    with StubReplica("a") as a, StubReplica("b") as b:
        ledger = Ledger(a, b)
        settings = config({"*": model(a, b, concurrency=1, idempotent=True, outlier_detection={"enabled": False})})
        with Serving(settings) as gateway, nothing_left(gateway):
            for stub in (a, b):
                stub.answer_all([["body"], ["gate", "fail"], ["close"]])
            connections = [gateway.connect() for _ in range(2)]
            for connection in connections:
                connection.send(request("POST", id=new_id()))
            for stub in (a, b):
                stub.wait("waiting")
            for connection in connections:
                connection.close()
            for stub in (a, b):
                stub.open("fail")
                stub.answer_all(None)
            with gateway.connect() as connection:
                for _ in range(6):
                    assert ledger.ask(connection, may_retry=True) == "ok"
        ledger.check()
