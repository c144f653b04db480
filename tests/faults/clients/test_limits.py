"""What is too large or too much: 431, 413, 503, and memory stays flat."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.harness import (
    MIB,
    WAIT_TIMEOUT_SECONDS,
    Connection,
    Ledger,
    NoAnswer,
    Serving,
    StubReplica,
    Truncated,
    config,
    model,
    new_id,
    nothing_left,
    request,
    scripts,
    wait_until,
)

pytestmark = pytest.mark.smoke

LIMITS = {"header_bytes": "16KiB", "header_count": 50, "body_bytes": "2MiB", "connections": 40}
MAX_GROWTH_BYTES = 24 * MIB


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    with Serving(config([stub], limits=LIMITS)) as serving, nothing_left(serving):
        yield serving


def pour(connection: Connection, block: bytes, blocks: int) -> None:
    """Send until it is done or the other side has had enough."""
    for _ in range(blocks):
        if not connection.try_send(block):
            return


def flood(connection: Connection, block: bytes) -> None:
    """Send without end, fast at first; the other side may take a while to read on so that its last word arrives."""
    pour(connection, block, 1000)
    end = time.monotonic() + WAIT_TIMEOUT_SECONDS
    while connection.try_send(block):
        assert time.monotonic() < end, "it reads on for ever"
        time.sleep(0.02)


def last_word(connection: Connection) -> int:
    """The status of the answer; 0: closed without one (a reset can overtake it)."""
    try:
        return connection.response("POST").status
    except (NoAnswer, Truncated):
        return 0


class TestHeaders:
    def test_as_many_and_as_large_as_allowed(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        headers = {f"x-{number}": "y" * 250 for number in range(45)}
        assert gateway.ask("POST", id=id, headers=headers).status == 200
        assert len([1 for name, _ in stub.request(id)["headers"] if name.startswith("x-") and name[2:].isdigit()]) == 45

    @pytest.mark.parametrize(
        "headers",
        [
            {f"x-{number}": "y" for number in range(60)},
            {"x-large": "y" * 17_000},
            {"x" * 17_000: "y"},
            {f"x-{number}": "y" * 500 for number in range(40)},
            {"cookie": "a=" + "b" * 40_000},
        ],
        ids=["many", "a large value", "a large name", "large together", "a large cookie"],
    )
    def test_too_many_or_too_large(self, gateway: Serving, stub: StubReplica, headers: dict[str, str]) -> None:
        id = new_id()
        with gateway.connect() as connection:
            connection.send(request("POST", id=id, headers=headers))
            response = connection.response("POST")
            assert response.status == 431, response
            connection.wait_closed()
        stub.never("request", id=id)

    def test_a_long_target(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        with gateway.connect() as connection:
            connection.send(request("GET", "/" + "x" * 20_000, id=id))
            assert connection.response("GET").status in (414, 431)
        stub.never("request", id=id)

    def test_long_chunk_extensions_and_trailers(self, gateway: Serving, stub: StubReplica) -> None:
        """Framing is bounded like headers: it must not be a way around the limits."""
        for tail in (b"5;" + b"x" * MIB + b"\r\nhello\r\n0\r\n\r\n", b"0\r\n" + b"x: y\r\n" * 100_000 + b"\r\n"):
            id, before = new_id(), gateway.memory()
            with gateway.connect() as connection:
                connection.try_send(request("POST", id=id, headers={"transfer-encoding": "chunked"}) + tail)
                assert last_word(connection) in (0, 400, 413, 431)
            assert gateway.memory() - before < MAX_GROWTH_BYTES
            stub.never("body", id=id)

    @pytest.mark.parametrize(
        "block", [b"x" * 65536, b"x: y\r\n" * 10_000, b"\r\n" * 30_000], ids=["line", "lines", "empty"]
    )
    def test_without_end(self, gateway: Serving, block: bytes) -> None:
        before = gateway.memory()
        with gateway.connect() as connection:
            start = b"" if block[:1] == b"\r" else b"GET /"
            connection.send(start)
            if block[:1] == b"\r":
                pour(connection, block, 1000)
            else:
                flood(connection, block)
                assert last_word(connection) in (0, 400, 414, 431)
        assert gateway.memory() - before < MAX_GROWTH_BYTES


class TestBodies:
    def test_as_large_as_allowed(self, gateway: Serving, stub: StubReplica) -> None:
        for options in ({"body": b"x" * (2 * MIB)}, {"chunks": [b"x" * MIB, b"x" * MIB]}):
            id = new_id()
            assert gateway.ask("POST", id=id, **options).status == 200
            assert stub.wait("body", id=id)["length"] == 2 * MIB

    @pytest.mark.parametrize("target", ["/work", "/v1/chat/completions"])
    def test_a_length_that_is_too_large(self, gateway: Serving, stub: StubReplica, target: str) -> None:
        """Refused by its head alone; who sends the body all the same does not fill the memory."""
        id, before = new_id(), gateway.memory()
        with gateway.connect() as connection:
            connection.send(request("POST", target, id=id, headers={"content-length": str(2 * MIB + 1)}))
            assert connection.response("POST").status == 413
            pour(connection, b"x" * MIB, 100)
        assert gateway.memory() - before < MAX_GROWTH_BYTES
        stub.never("request", id=id)

    @pytest.mark.parametrize("target", ["/work", "/v1/chat/completions"])
    def test_chunks_that_become_too_large(self, gateway: Serving, stub: StubReplica, target: str) -> None:
        id, before = new_id(), gateway.memory()
        with gateway.connect() as connection:
            connection.send(request("POST", target, id=id, headers={"transfer-encoding": "chunked"}))
            flood(connection, b"10000\r\n" + b"x" * 65536 + b"\r\n")
            assert last_word(connection) in (0, 413)
        assert gateway.memory() - before < MAX_GROWTH_BYTES
        stub.never("body", id=id)
        if stub.of("request", id=id):
            stub.wait_left(id)

    def test_chunks_that_become_too_large_and_wait_for_the_answer(self, gateway: Serving) -> None:
        """A client that stops at the limit's edge hears why."""
        with gateway.connect() as connection:
            connection.send(request("POST", headers={"transfer-encoding": "chunked"}))
            for _ in range(33):
                connection.try_send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            assert last_word(connection) == 413

    def test_one_huge_chunk(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        with gateway.connect() as connection:
            connection.send(request("POST", id=id, headers={"transfer-encoding": "chunked"}) + b"7fffffff\r\n")
            pour(connection, b"x" * 65536, 100)
            assert last_word(connection) in (0, 400, 413)
        stub.never("body", id=id)

    def test_tiny_chunks(self, gateway: Serving, stub: StubReplica) -> None:
        """A body of one-byte chunks costs time, not memory."""
        id, before = new_id(), gateway.memory()
        assert gateway.ask("POST", id=id, chunks=[b"x"] * 100_000).status == 200
        assert stub.wait("body", id=id)["length"] == 100_000
        assert gateway.memory() - before < MAX_GROWTH_BYTES


class TestConnections:
    def test_too_many(self, gateway: Serving) -> None:
        """Those over the limit are turned away or wait; those inside are served; room comes back."""
        with gateway.connect() as first:
            assert first.ask("GET").status == 200
            crowd = [gateway.connect() for _ in range(60)]
            before = gateway.memory()
            assert first.ask("GET").status == 200
            for connection in crowd:
                connection.close()
            assert gateway.memory() - before < MAX_GROWTH_BYTES
        wait_until(lambda: ask_once(gateway) == 200, "no room came back")

    def test_descriptors_are_bounded(self, gateway: Serving) -> None:
        before = gateway.descriptors()
        crowd = [gateway.connect() for _ in range(120)]
        try:
            wait_until(lambda: gateway.descriptors() <= before + LIMITS["connections"] + 5, "all were taken")
        finally:
            for connection in crowd:
                connection.close()
        wait_until(lambda: ask_once(gateway) == 200, "no room came back")


def ask_once(gateway: Serving) -> int:
    try:
        return gateway.ask("GET").status
    except (Truncated, ConnectionError):
        return 0


def test_unused_connections_to_a_replica_are_bounded() -> None:
    with StubReplica("a") as stub:
        settings = config([stub], limits={"idle_connections_per_replica": 3}, timeouts={"replica_idle": "60s"})
        with Serving(settings) as gateway:
            clients = [gateway.connect() for _ in range(20)]
            gate = new_id("gate")
            for connection in clients:
                connection.send(request("POST", script=scripts.held(gate)))
            stub.wait("waiting", 20)
            stub.open(gate)
            for connection in clients:
                assert connection.response().status == 200
                connection.close()
            stub.wait_for(lambda: len(stub.of("open")) - len(stub.of("lost")) <= 3, "no more than three are kept")
            assert gateway.ask("POST").status == 200


def test_bodies_kept_in_memory_are_bounded_all_together() -> None:
    """Many waiting requests with bodies that have to be read: over `buffered` they are refused or slowed, not kept."""
    with StubReplica("a") as stub:
        models = {"*": model(stub, concurrency=1, max_queue=1000, queue_timeout="60s")}
        limits = {"total_buffer_bytes": "8MiB", "replay_bytes": "1MiB"}
        ledger, cut = Ledger(stub), list[float]()
        with Serving(config(models, limits=limits)) as gateway, nothing_left(gateway, memory=64 * MIB):
            before, gate = gateway.memory(), new_id("gate")
            stub.answer_all(scripts.held(gate))

            def client() -> None:
                with gateway.connect(timeout=60) as connection:
                    body = b'{"model": "m", "prompt": "' + b"x" * (900 << 10) + b'"}'
                    began = time.monotonic()
                    end = ledger.ask(connection, may_retry=True, target="/v1/completions", body=body)
                    if end in ("truncated", "no answer"):
                        cut.append(time.monotonic() - began)

            clients = [threading.Thread(target=client) for _ in range(60)]
            for thread in clients:
                thread.start()
            stub.wait("waiting")
            most = max(gateway.memory() for _ in range(200))
            stub.open(gate)
            stub.answer_all(None)
            for thread in clients:
                thread.join(60)
            assert most - before < 48 * MIB
        ledger.check()
        assert ledger.count()["ok"] >= 1
        # Who is refused has two seconds to send the rest: who is slower may miss the refusal.
        assert all(seconds > 2 for seconds in cut), cut
        refusals = ledger.count().keys() - {"ok", "truncated", "no answer"}
        assert all(end.split()[1] in ("413", "429", "503") for end in refusals), ledger.count()
