"""Replicas that answer, but badly: errors at once, nonsense, more than was asked for."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.harness import (
    Ledger,
    Serving,
    StubReplica,
    Truncated,
    config,
    model,
    new_id,
    nothing_left,
    request,
    scripts,
    seen_by,
)

OK = "HTTP/1.1 200 OK\r\n"


class TestErrorsAtOnce:
    """Fast failures look like an idle replica: it must not draw all the traffic."""

    @pytest.mark.parametrize("status", [500, 503])
    @pytest.mark.parametrize("policy", ["least_work", "least_connections"])
    def test_no_sinkhole(self, policy: str, status: int) -> None:
        stubs = [StubReplica(name) for name in "abcd"]
        ledger = Ledger(*stubs)
        try:
            with (
                Serving(config({"*": model(*stubs, policy=policy, idempotent=True)})) as gateway,
                nothing_left(gateway),
            ):
                stubs[0].answer_all(scripts.fails(status))
                for stub in stubs[1:]:
                    stub.answer_all(scripts.slow(0.005))

                def client() -> None:
                    with gateway.connect() as connection:
                        for _ in range(60):
                            ledger.ask(connection, may_retry=True)

                clients = [threading.Thread(target=client) for _ in range(5)]
                for thread in clients:
                    thread.start()
                for thread in clients:
                    thread.join(60)
            ledger.check()
            # A fair share is a quarter, a sinkhole takes nearly all. Probes are a few.
            assert len(stubs[0].ids()) < 30, Counter(len(stub.ids()) for stub in stubs)
            assert ledger.count()["ok"] >= 290
        finally:
            for stub in stubs:
                stub.stop()

    def test_an_error_after_work_runs_once(self) -> None:
        """A 500 to what must not run twice is the client's to see, whole."""
        with StubReplica("a") as a, StubReplica("b") as b:
            ledger = Ledger(a, b)
            settings = config({"*": model(a, b, idempotent=False, outlier_detection={"enabled": False})})
            with Serving(settings) as gateway, gateway.connect() as connection:
                for stub in (a, b):
                    stub.answer_all(scripts.fails(500, {"x-own": "1"}))
                for _ in range(5):
                    ledger.ask(connection, may_retry=False, body=b"x")
                response = connection.ask("POST", script=scripts.plain("whole", 500, {"x-own": "1"}))
                assert (response.status, response.body, response.headers["x-own"]) == (500, b"whole", "1")
            ledger.check()
            assert ledger.count() == {"error 500": 5}

    @pytest.mark.parametrize("status", [503, 500])
    def test_a_retry_storm_is_bounded(self, status: int) -> None:
        """Every replica fails: attempts ≤ 1.2 × requests + 3."""
        stubs = [StubReplica(name) for name in "abc"]
        ledger = Ledger(*stubs)
        try:
            with Serving(config({"*": model(*stubs, idempotent=True)})) as gateway, nothing_left(gateway):
                for stub in stubs:
                    stub.answer_all(scripts.fails(status))
                with gateway.connect() as connection:
                    for _ in range(150):
                        ledger.ask(connection, may_retry=True)
                ledger.check()
                attempts = sum(len(stub.ids()) for stub in stubs)
                assert attempts <= 1.2 * 150 + 3
                assert set(ledger.count()) <= {
                    f"error {status}",
                    *(f"error 503 {r}" for r in ("no_replica", "queue_timeout")),
                }
                for stub in stubs:
                    stub.answer_all(None)
                assert gateway.ask("GET").status == 200, "it does not recover by itself"
        finally:
            for stub in stubs:
                stub.stop()

    def test_the_replica_s_own_retry_after_is_kept(self) -> None:
        with StubReplica("a") as stub, Serving(config([stub])) as gateway:
            response = gateway.ask("POST", script=scripts.fails(429, {"retry-after": "7"}))
            assert (response.status, response.headers["retry-after"]) == (429, "7")


BAD_HEADS = {
    "no status line": "hello there\r\n\r\n",
    "another protocol": "SSH-2.0-OpenSSH_9\r\n\r\n",
    "a status of two digits": "HTTP/1.1 20 OK\r\ncontent-length: 2\r\n\r\nok",
    "a status that is no number": "HTTP/1.1 2x0 OK\r\ncontent-length: 2\r\n\r\nok",
    "status 0": "HTTP/1.1 000 OK\r\ncontent-length: 2\r\n\r\nok",
    "two lengths": f"{OK}content-length: 2\r\ncontent-length: 5\r\n\r\nokaay",
    "a list of lengths": f"{OK}content-length: 2, 5\r\n\r\nokaay",
    "length +2": f"{OK}content-length: +2\r\n\r\nok",
    "length -2": f"{OK}content-length: -2\r\n\r\nok",
    "length 0x2": f"{OK}content-length: 0x2\r\n\r\nok",
    "length beyond 64 bits": f"{OK}content-length: 18446744073709551618\r\n\r\nok",
    "a line without a colon": f"{OK}just a line\r\ncontent-length: 2\r\n\r\nok",
    "space before the colon": f"{OK}content-length : 2\r\n\r\nok",
    "NUL in a value": f"{OK}x: a\0b\r\ncontent-length: 2\r\n\r\nok",
    "bare CR in a value": f"{OK}x: a\rset-cookie: evil=1\r\ncontent-length: 2\r\n\r\nok",
    "a name with a space": f"{OK}a b: c\r\ncontent-length: 2\r\n\r\nok",
    "an endless header": f"{OK}x: {'y' * 2_000_000}\r\ncontent-length: 2\r\n\r\nok",
    "endless headers": OK + "".join(f"x-{n}: y\r\n" for n in range(50_000)) + "content-length: 2\r\n\r\nok",
}

BAD_BODIES = {  # the head is fine, so the client has it: what follows must show as broken
    "chunk size g": "g\r\nabc\r\n0\r\n\r\n",
    "chunk size +3": "+3\r\nabc\r\n0\r\n\r\n",
    "chunk size 0x3": "0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size -3": "-3\r\nabc\r\n0\r\n\r\n",
    "chunk size beyond 64 bits": "10000000000000003\r\nabc\r\n0\r\n\r\n",
    "data longer than its size": "3\r\nabcd\r\n0\r\n\r\n",
    "no chunk size": "\r\nabc\r\n0\r\n\r\n",
    "a trailer without a colon": "3\r\nabc\r\n0\r\nevil\r\n\r\n",
}


class TestNonsense:
    @pytest.fixture(scope="class")
    @classmethod
    def stub(cls) -> Iterator[StubReplica]:
        with StubReplica("a") as stub:
            yield stub

    @pytest.fixture(scope="class")
    @classmethod
    def gateway(cls, stub: StubReplica) -> Iterator[Serving]:
        models = {"*": model(stub, idempotent=False, outlier_detection={"enabled": False})}
        with Serving(config(models)) as serving, nothing_left(serving):
            yield serving

    def follow_up(self, gateway: Serving) -> None:
        """Whoever comes next gets its own answer."""
        id = new_id()
        assert f'"{id}"'.encode() in gateway.ask("POST", id=id).body

    @pytest.mark.parametrize("name", BAD_HEADS)
    def test_a_bad_head_is_502(self, gateway: Serving, stub: StubReplica, name: str) -> None:
        id = new_id()
        with gateway.connect() as connection:
            connection.send(request("POST", id=id))
            stub.wait("done", id=id)
            assert connection.response().status == 200
        id = new_id()
        stub.answer_all([["body"], ["send", BAD_HEADS[name]], ["until_gone"]])
        try:
            response = gateway.ask("POST", id=id)
        finally:
            stub.answer_all(None)
        assert response.status == 502, response
        assert response.headers["steelyard-reason"]
        assert b"evil" not in response.body
        assert seen_by([stub], id) == 1
        stub.wait_left(id)
        self.follow_up(gateway)

    @pytest.mark.parametrize("name", BAD_BODIES)
    def test_a_bad_body_is_cut(self, gateway: Serving, stub: StubReplica, name: str) -> None:
        id = new_id()
        text = f"{OK}transfer-encoding: chunked\r\n\r\n{BAD_BODIES[name]}"
        with gateway.connect() as connection:
            connection.send(request("POST", id=id, script=scripts.raw(text, ["until_gone"])))
            try:
                response = connection.response()
            except Truncated:
                pass
            else:
                assert response.status == 502, "it looks whole"
        stub.wait_left(id)
        self.follow_up(gateway)

    def test_both_framings(self, gateway: Serving, stub: StubReplica) -> None:
        """RFC 9112 6.3: chunked wins and the length goes, or it is an error; the connection is not used again."""
        id = new_id()
        text = f"{OK}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"
        with gateway.connect() as connection:
            connection.send(request("POST", id=id, script=scripts.raw(text)))
            response = connection.response()  # both would be a BadAnswer
        assert (response.status, response.body) == (200, b"abcde") or response.status == 502
        stub.wait_left(id)
        self.follow_up(gateway)

    def test_a_folded_header(self, gateway: Serving) -> None:
        """RFC 9112 5.2: refused, or made one line; never passed on folded (that would be a BadAnswer)."""
        text = f"{OK}x-long: one\r\n two\r\ncontent-length: 2\r\n\r\nok"
        response = gateway.ask("POST", script=scripts.raw(text))
        assert response.status == 502 or response.headers["x-long"].split() == ["one", "two"]
        self.follow_up(gateway)

    def test_codings_nobody_knows(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            script = scripts.raw(f"{OK}transfer-encoding: xchunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", ["close"])
            connection.send(request("POST", script=script))
            assert connection.response().status == 502
        self.follow_up(gateway)

    @pytest.mark.parametrize("extra", ["HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", "evil", "\r\n\r\n"])
    @pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
    def test_more_than_was_asked_for(self, gateway: Serving, stub: StubReplica, extra: str, late: bool) -> None:
        """An answer that nobody asked for must not become the answer to the next request."""
        id = new_id()
        first = f"{OK}content-length: 2\r\n\r\nok"
        steps = [["send", first], ["sleep", 0.05], ["send", extra]] if late else [["send", first + extra]]
        with gateway.connect() as connection:
            assert connection.ask("POST", id=id, script=[["body"], *steps]).body == b"ok"
            stub.wait_left(id)  # before it has left, nobody could tell whose answer that is
            for _ in range(5):
                mine = new_id()
                assert f'"{mine}"'.encode() in connection.ask("POST", id=mine).body
        assert b"evil" not in b"".join(str(event).encode() for event in stub.misdeeds)

    @pytest.mark.parametrize(
        ("method", "status", "headers"),
        [
            ("HEAD", 200, "content-length: 4\r\n"),
            ("GET", 204, ""),
            ("GET", 204, "content-length: 4\r\n"),
            ("GET", 304, "content-length: 4\r\n"),
        ],
        ids=["HEAD", "204", "204 with a length", "304"],
    )
    def test_a_body_where_none_may_be(self, gateway: Serving, method: str, status: int, headers: str) -> None:
        script = scripts.raw(f"HTTP/1.1 {status} x\r\n{headers}\r\nevil")
        with gateway.connect() as connection:
            response = connection.ask(method, script=script)
            assert response.status in (status, 502)
            for _ in range(5):
                mine = new_id()
                assert f'"{mine}"'.encode() in connection.ask("POST", id=mine).body

    def test_a_thousand_interim_answers(self, gateway: Serving) -> None:
        """A flood of 1xx is passed on or refused, and costs no memory."""
        before = gateway.memory()
        with gateway.connect(timeout=20) as connection:
            flood = "HTTP/1.1 102 Processing\r\n\r\n" * 1000
            connection.send(request("POST", script=scripts.raw(f"{flood}{OK}content-length: 2\r\n\r\nok")))
            with contextlib.suppress(Truncated):
                assert connection.response().status in (200, 502)
        assert gateway.memory() - before < 32 << 20
        self.follow_up(gateway)
