"""Bodies, both ways: lengths, chunks, trailers, no body where none may be, large ones with back-pressure."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import pytest

from tests.harness import (
    MIB,
    WAIT_TIMEOUT_SECONDS,
    Serving,
    StubReplica,
    config,
    new_id,
    nothing_left,
    request,
    scripts,
    steady,
)
from tests.harness.replicas.stub_server import BLOCK_BYTES, PATTERN

# More than buffers of 256 KiB a connection and the kernel's own can explain, less than one body.
MAX_GROWTH_BYTES = 48 * MIB


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    with Serving(config([stub], limits={"replay_bytes": "1MiB"})) as serving:
        yield serving


class TestRequests:
    @pytest.mark.parametrize("size", [0, 1, 1000, 65_536, 3 * MIB])
    def test_with_a_length(self, gateway: Serving, stub: StubReplica, size: int) -> None:
        id, body = new_id(), bytes(range(256)) * (size // 256 + 1)
        body = body[:size]
        assert gateway.ask("POST", id=id, body=body).status == 200
        seen = stub.wait("body", id=id)
        assert (seen["length"], seen["sha"]) == (size, hashlib.sha256(body).hexdigest())

    @pytest.mark.parametrize("sizes", [[], [1], [10, 1, 100_000], [65_536] * 40], ids=len)
    def test_in_chunks(self, gateway: Serving, stub: StubReplica, sizes: list[int]) -> None:
        id, chunks = new_id(), [bytes([place % 251]) * size for place, size in enumerate(sizes)]
        assert gateway.ask("POST", id=id, chunks=chunks).status == 200
        seen = stub.wait("body", id=id)
        assert (seen["length"], seen["sha"]) == (sum(sizes), hashlib.sha256(b"".join(chunks)).hexdigest())

    def test_extensions_of_chunks_are_ignored(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        with gateway.connect() as connection:
            head = request("POST", id=id, chunks=[]).partition(b"\r\n\r\n")[0]
            connection.send(head + b'\r\n\r\n5;name=value;other="a b"\r\nhello\r\n0;last\r\n\r\n')
            assert connection.response().status == 200  # RFC 9112 7.1.1
        assert stub.wait("body", id=id)["length"] == 5

    def test_trailers_reach_the_replica(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        gateway.ask("POST", id=id, chunks=[b"abc"], trailers={"x-checksum": "900150983cd2"})
        assert ["x-checksum", "900150983cd2"] in stub.wait("body", id=id)["trailers"]

    def test_trailers_that_would_change_the_framing_do_not(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        response = gateway.ask("POST", id=id, chunks=[b"abc"], trailers={"content-length": "99", "host": "evil"})
        if response.status == 200:  # RFC 9110 6.5.1: not merged, dropped or refused
            assert {name for name, _ in stub.wait("body", id=id)["trailers"]} & {"content-length", "host"} == set()
            assert stub.headers(id)["host"] != "evil"
        else:
            assert response.status == 400

    def test_the_replica_gets_the_body_while_it_comes(self, gateway: Serving, stub: StubReplica) -> None:
        """What is longer than is kept for another try is passed on before it ends: nobody waits for the whole."""
        id = new_id()
        whole = request("POST", id=id, chunks=[b"x" * (2 * MIB), b"second"])
        with gateway.connect() as connection:
            connection.send(whole[:-20])
            stub.wait("request", id=id)
            connection.send(whole[-20:])
            assert connection.response().status == 200


class TestExpectations:
    def test_the_client_is_told_to_go_on(self, gateway: Serving, stub: StubReplica) -> None:
        id = new_id()
        whole = request("POST", id=id, body=b"0123456789", headers={"expect": "100-continue"})
        head, _, body = whole.partition(b"\r\n\r\n")
        with gateway.connect() as connection:
            connection.send(head + b"\r\n\r\n")
            assert connection.interim() == 100
            connection.send(body)
            response = connection.response()
        assert response.status == 200
        assert stub.wait("body", id=id)["length"] == 10

    def test_a_client_that_does_not_wait(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            for _ in range(2):
                response = connection.ask("POST", body=b"0123456789", headers={"expect": "100-continue"})
                assert response.status == 200
                assert [status for status, _ in response.informational] in ([], [100])

    @pytest.mark.parametrize("value", ["200-ok", "100-continue, other"])
    def test_what_is_not_known_may_be_refused(self, gateway: Serving, value: str) -> None:
        assert gateway.ask("POST", body=b"x", headers={"expect": value}).status in (200, 400, 417)

    @pytest.mark.parametrize("value", ["100-Continue", "", ", 100-continue"])
    def test_as_lenient_as_lists_are(self, gateway: Serving, value: str) -> None:
        """RFC 9110 10.1.1: not case-sensitive; 5.6.1.2: empty elements are nothing."""
        assert gateway.ask("POST", body=b"x", headers={"expect": value}).status == 200

    def test_a_refused_client_may_keep_its_body(self, gateway: Serving) -> None:
        """Known to be refused from its head alone: no 100, no body needed."""
        head = request("POST", headers={"expect": "100-continue", "content-length": str(10**12)})
        with gateway.connect() as connection:
            connection.send(head)
            response = connection.response()
        assert response.status == 413
        assert response.informational == []


class TestAnswers:
    def test_with_a_length(self, gateway: Serving) -> None:
        response = gateway.ask("GET", script=scripts.plain("x" * 1000, headers={"x-own": "1"}))
        assert (response.body, response.framing, response.headers["x-own"]) == (b"x" * 1000, "length", "1")

    def test_in_chunks(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            for _ in range(2):
                response = connection.ask("GET", script=scripts.chunked("one", "two" * 100, "three"))
                assert (response.body, response.framing) == (b"one" + b"two" * 100 + b"three", "chunked")

    def test_trailers_reach_the_client(self, gateway: Serving) -> None:
        script = scripts.chunked("abc", headers={"trailer": "x-sum"}, trailers={"x-sum": "42"})
        response = gateway.ask("GET", headers={"te": "trailers"}, script=script)
        assert response.trailers == {"x-sum": "42"}

    def test_until_the_replica_closes(self, gateway: Serving) -> None:
        response = gateway.ask("GET", script=scripts.until_close("all of it"))
        assert response.body == b"all of it"
        assert response.framing in ("chunked", "close")

    def test_an_error_of_the_replica_is_passed_on_whole(self, gateway: Serving) -> None:
        response = gateway.ask("POST", script=scripts.plain('{"error": "bad input"}', 422, {"x-detail": "shape"}))
        assert (response.status, response.body) == (422, b'{"error": "bad input"}')
        assert response.headers["x-detail"] == "shape"

    @pytest.mark.parametrize("status", [200, 404])
    def test_head_has_no_body(self, gateway: Serving, status: int) -> None:
        with gateway.connect() as connection:
            response = connection.ask("HEAD", script=scripts.bare(status, {"content-length": "12345"}))
            assert (response.status, response.headers["content-length"]) == (status, "12345")
            response = connection.ask("HEAD", script=scripts.bare(status, {"transfer-encoding": "chunked"}))
            assert response.status == status
            response = connection.ask("HEAD", script=scripts.bare(status))
            assert response.status == status
            assert connection.ask("GET", script=scripts.plain("next")).body == b"next"

    @pytest.mark.parametrize("status", [204, 304])
    def test_nor_have_204_and_304(self, gateway: Serving, status: int) -> None:
        with gateway.connect() as connection:
            for _ in range(2):
                assert connection.ask("GET", script=scripts.bare(status, {"etag": '"e"'})).headers["etag"] == '"e"'
            assert connection.ask("GET", script=scripts.plain("next")).body == b"next"

    def test_304_may_tell_a_length_it_does_not_have(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            response = connection.ask("GET", script=scripts.bare(304, {"content-length": "5000"}))
            assert response.status == 304
            assert connection.ask("GET", script=scripts.plain("next")).body == b"next"

    def test_interim_answers_are_passed_on(self, gateway: Serving) -> None:
        interim = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n"
        script = scripts.raw(interim * 2 + "HTTP/1.1 200 ok\r\ncontent-length: 2\r\n\r\nok")
        with gateway.connect() as connection:
            response = connection.ask("GET", script=script)
            assert [status for status, _ in response.informational] == [103, 103]  # RFC 9110 15.2
            assert response.informational[0][1]["link"] == "</style.css>"
            assert response.body == b"ok"
            assert connection.ask("GET").status == 200

    def test_a_100_nobody_asked_for_does_no_harm(self, gateway: Serving) -> None:
        script = scripts.raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ok\r\ncontent-length: 2\r\n\r\nok")
        with gateway.connect() as connection:
            assert connection.ask("POST", body=b"x", script=script).body == b"ok"
            assert connection.ask("GET").status == 200

    def test_an_answer_in_single_bytes(self, gateway: Serving) -> None:
        text = "HTTP/1.1 200 ok\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        script = [["body"], *([["send", byte], ["sleep", 0]][place % 2] for byte in text for place in range(2))]
        assert gateway.ask("GET", script=script).body == b"abc"


class TestLarge:
    SIZE = 96 * MIB

    @pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
    def test_down_to_a_client_that_pauses(self, gateway: Serving, stub: StubReplica, chunked: bool) -> None:
        id = new_id()
        with nothing_left(gateway):
            before = gateway.memory()
            with gateway.connect(receive_buffer=1 << 16) as connection:
                connection.send(request("GET", id=id, script=scripts.large(self.SIZE, chunked)))
                stub.wait("filled", id=id)
                sent = steady(lambda: stub.of("filled", id=id)[-1]["sent"])
                assert sent < self.SIZE / 2, "the replica was not paused"
                assert gateway.memory() - before < MAX_GROWTH_BYTES
                response = connection.response()
            assert len(response.body) == self.SIZE
            assert bytes(response.body[-BLOCK_BYTES:]) == PATTERN
            assert gateway.memory() - before < MAX_GROWTH_BYTES

    @pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
    def test_up_to_a_replica_that_pauses(self, gateway: Serving, stub: StubReplica, chunked: bool) -> None:
        id, gate, blocks = new_id(), new_id("gate"), self.SIZE // BLOCK_BYTES
        headers = {"transfer-encoding": "chunked"} if chunked else {"content-length": str(self.SIZE)}
        head = request("POST", id=id, headers=headers, script=[["gate", gate], ["body"], ["reply"]])
        sent = 0

        def pour() -> None:
            nonlocal sent
            for _ in range(blocks):
                connection.send(b"%x\r\n%s\r\n" % (BLOCK_BYTES, PATTERN) if chunked else PATTERN)
                sent += BLOCK_BYTES
            if chunked:
                connection.send(b"0\r\n\r\n")

        with nothing_left(gateway):
            before = gateway.memory()
            with gateway.connect() as connection:
                connection.send(head)
                pouring = threading.Thread(target=pour)
                pouring.start()
                stub.wait("waiting", id=id)
                assert steady(lambda: sent) < self.SIZE / 2, "the client was not paused"
                assert gateway.memory() - before < MAX_GROWTH_BYTES
                stub.open(gate)
                pouring.join(WAIT_TIMEOUT_SECONDS)
                assert not pouring.is_alive()
                assert connection.response().status == 200
            assert gateway.memory() - before < MAX_GROWTH_BYTES
        seen = stub.wait("body", id=id)
        assert (seen["length"], seen["sha"]) == (self.SIZE, hashlib.sha256(PATTERN * blocks).hexdigest())

    def test_both_ways_at_once(self, gateway: Serving, stub: StubReplica) -> None:
        """An echo: the answer begins before the request has ended."""
        id = new_id()
        script = [["send", "HTTP/1.1 200 ok\r\nconnection: close\r\n\r\n"], ["echo"]]
        with gateway.connect() as connection:
            first = b"x" * (2 * MIB)
            connection.send(
                request("POST", id=id, script=script, headers={"content-length": str(len(first) + 5)}) + first
            )
            response = connection.begin()
            connection.take(response, lambda: len(response.body) >= len(first))
            connection.send(b"56789")
            connection.read_body(response, b"56789")
