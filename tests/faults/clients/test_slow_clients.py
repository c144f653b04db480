"""Clients that are slow on purpose: in their headers, their body, or in reading. They are cut; others do not notice."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from tests.harness import (
    MIB,
    Connection,
    Ledger,
    Response,
    Serving,
    StubReplica,
    config,
    model,
    new_id,
    nothing_left,
    request,
    scripts,
    slots_free,
)

TIMEOUTS = {"header": "2s", "body": "700ms", "write": "2s", "idle": "2s"}  # those who are not slow need far less
SLOW_CLIENTS = 30


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    models = {"*": model(stub, concurrency=SLOW_CLIENTS + 10)}
    settings = config(models, timeouts=TIMEOUTS, limits={"replay_bytes": "1KiB"})
    with Serving(settings) as serving, nothing_left(serving):
        yield serving


@contextlib.contextmanager
def others_unaffected(gateway: Serving, stub: StubReplica) -> Iterator[None]:
    """Honest clients ask all the while, and all of them are answered."""
    ledger, over = Ledger(stub), threading.Event()

    def honest() -> None:
        while not over.is_set():
            with gateway.connect() as connection:
                for _ in range(10):
                    ledger.ask(connection, may_retry=False)

    thread = threading.Thread(target=honest)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
    ledger.check()
    assert set(ledger.count()) == {"ok"}


def gone(connection: Connection, allowed: set[int]) -> None:
    """It was closed, with one of these answers or without a word."""
    came = connection.wait_closed()
    if came:
        response = Response("POST")
        response.feed(came)
        assert response.status in allowed, response


def test_headers_that_never_end(gateway: Serving, stub: StubReplica) -> None:
    with others_unaffected(gateway, stub), nothing_left(gateway, spare=1):
        connections = [gateway.connect() for _ in range(SLOW_CLIENTS)]
        for connection in connections:
            connection.send(b"POST /work HTTP/1.1\r\nhost: a\r\n")
        for connection in connections:
            gone(connection, {408})
            connection.close()


def test_headers_that_drip(gateway: Serving, stub: StubReplica) -> None:
    """Each byte in time, the whole not: the time is for all the headers."""
    with others_unaffected(gateway, stub), gateway.connect() as connection:
        connection.send(b"POST /work HTTP/1.1\r\nhost: a\r\n")
        for number in range(200):
            if not connection.try_send(f"x-{number}: y\r\n".encode()) or not connection.quiet(0.1):
                break
        else:
            pytest.fail("20 s of dripping headers were taken")
        gone(connection, {408})


def test_a_body_that_stops(gateway: Serving, stub: StubReplica) -> None:
    with others_unaffected(gateway, stub), nothing_left(gateway, spare=1):
        connections = [gateway.connect() for _ in range(SLOW_CLIENTS)]
        ids = [new_id("slow") for _ in connections]
        for number, (id, connection) in enumerate(zip(ids, connections, strict=True)):
            framing = {"transfer-encoding": "chunked"} if number % 2 else {"content-length": "5000000"}
            connection.send(request("POST", id=id, headers=framing) + b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        for id in ids:
            stub.wait("request", id=id)  # they hold slots and connections of the replica
        for connection in connections:
            gone(connection, {408})
            connection.close()
    for id in ids:
        stub.wait_left(id)
        stub.never("body", id=id)
    slots_free(gateway, stub, SLOW_CLIENTS + 10)


def test_a_body_that_has_to_be_read_first_and_stops(gateway: Serving, stub: StubReplica) -> None:
    id = new_id("slow")
    with gateway.connect() as connection:
        headers = {"content-length": "500"}
        connection.send(request("POST", "/v1/chat/completions", id=id, headers=headers) + b'{"model": ')
        gone(connection, {408})
    stub.never("body", id=id)


def test_a_client_that_does_not_read(gateway: Serving, stub: StubReplica) -> None:
    """The replica is paused, not drained into memory; then the client is cut and the replica let go."""
    with others_unaffected(gateway, stub), nothing_left(gateway, spare=1):
        before = gateway.memory()
        connections = [gateway.connect(receive_buffer=4096) for _ in range(SLOW_CLIENTS)]
        ids = [new_id("slow") for _ in connections]
        for id, connection in zip(ids, connections, strict=True):
            connection.send(request("POST", id=id, script=scripts.large(64 * MIB)))
        for id in ids:
            stub.wait("filled", id=id)
        assert gateway.memory() - before < 64 * MIB  # 30 × (256 KiB twice) and what the allocator keeps
        for id in ids:
            stub.wait_left(id)
        for connection in connections:
            connection.close()
        assert stub.of("filled", sent=64 * MIB) == []
    slots_free(gateway, stub, SLOW_CLIENTS + 10)


def test_a_client_that_reads_slowly_but_reads_is_served(gateway: Serving, stub: StubReplica) -> None:
    """`write` is for those who read nothing; a slow reader gets all of its answer."""
    with gateway.connect(receive_buffer=1 << 16) as connection:
        connection.send(request("POST", script=scripts.large(12 * MIB)))
        response = connection.begin()
        while not response.complete:
            target = len(response.body) + MIB
            connection.take(response, lambda target=target: len(response.body) >= target)
            time.sleep(0.1)
        assert len(response.body) == 12 * MIB


def test_many_requests_and_no_reading(gateway: Serving, stub: StubReplica) -> None:
    """Pipelined requests whose answers nobody takes: the gateway stops reading, it does not pile them up."""
    before = gateway.memory()
    connection = gateway.connect(receive_buffer=4096)
    connection.sock.settimeout(0.5)
    one = request("POST", script=scripts.large(MIB))
    with contextlib.suppress(TimeoutError, ConnectionError):
        for _ in range(2000):
            connection.send(one)
    assert gateway.memory() - before < 48 * MIB
    connection.wait_closed()
    connection.close()


def test_connections_that_say_nothing(gateway: Serving) -> None:
    connections = [gateway.connect() for _ in range(SLOW_CLIENTS)]
    with gateway.connect() as used:
        assert used.ask("GET").status == 200
        for connection in [*connections, used]:
            gone(connection, {408})
            connection.close()


@pytest.mark.skipif(shutil.which("slowhttptest") is None, reason="slowhttptest is not installed")
@pytest.mark.parametrize("attack", ["-H", "-B", "-X"])
def test_slowhttptest(gateway: Serving, stub: StubReplica, attack: str) -> None:
    """The tool the field uses, 60 connections for 5 seconds."""
    assert not isinstance(gateway.address, str)
    stub.answer_all(scripts.large(2 * MIB) if attack == "-X" else None)
    command = [
        "slowhttptest",
        attack,
        "-c",
        "60",
        "-r",
        "60",
        "-i",
        "1",
        "-l",
        "5",
        "-s",
        "100000",
        "-w",
        "512",
        "-y",
        "1024",
    ]
    try:
        before = gateway.memory()
        with nothing_left(gateway, spare=1):
            url = f"http://127.0.0.1:{gateway.address[1]}/work"
            tool = subprocess.Popen(
                [*command, "-n", "1", "-z", "32", "-u", url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while tool.poll() is None:
                id = new_id()
                response = gateway.ask("POST", id=id, script=scripts.slow(0.01))
                assert response.status == 200
                assert gateway.memory() - before < 64 * MIB
    finally:
        stub.answer_all(None)
