"""Replicas that die, freeze or cannot be reached: tried elsewhere when that is safe, else one execution and a 5xx."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

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
    wait_until,
)
from tests.harness.processes import CLOSE_WAIT, ESTABLISHED, tcp_sockets

GONE = {"502", "503", "504"}
# Every replica gets its turn, whatever it does, and there is always a retry left.
POLICY = {"policy": "round_robin", "outlier_detection": {"enabled": False}, "retry": {"budget": 1.0, "max_attempts": 2}}


@pytest.fixture
def pair() -> Iterator[tuple[StubReplica, StubReplica]]:
    with StubReplica("a") as a, StubReplica("b") as b:
        yield a, b


def both(pair: tuple[StubReplica, StubReplica], **rest: object) -> dict[str, object]:
    return {
        "safe": model(*pair, **POLICY, idempotent=True, **rest),
        "unsafe": model(*pair, **POLICY, idempotent=False, **rest),
        "only a": model(pair[0], **POLICY, idempotent=True, **rest),
    }


def failed(response_status: int) -> bool:
    return str(response_status) in GONE


class TestKilled:
    """kill -9 while it has the request and has said nothing."""

    @pytest.mark.smoke
    @pytest.mark.parametrize("name", ["safe", "unsafe"])
    def test_before_the_headers(self, pair: tuple[StubReplica, StubReplica], name: str) -> None:
        ledger = Ledger(*pair)
        with Serving(config(both(pair))) as gateway, nothing_left(gateway):
            ends: list[str] = []

            def client() -> None:
                with gateway.connect() as connection:
                    headers = {"steelyard-model": name}
                    ends.append(ledger.ask(connection, may_retry=name == "safe", headers=headers))

            for stub in pair:
                stub.answer_all(scripts.held("never"))
            clients = [threading.Thread(target=client) for _ in range(4)]
            for thread in clients:
                thread.start()
            for stub in pair:
                stub.wait("waiting", 2)
            pair[1].answer_all(None)  # what comes to it from now on is answered
            pair[0].kill()
            pair[1].open("never")
            for thread in clients:
                thread.join(30)
        ledger.check()
        if name == "safe":
            assert ends == ["ok"] * 4
        else:
            assert sorted(end.split()[0] for end in ends) == ["error", "error", "ok", "ok"]
            assert all(end.split()[1] == "502" for end in ends if end != "ok")

    @pytest.mark.parametrize("how", ["close", "reset"])
    @pytest.mark.parametrize("name", ["safe", "unsafe"])
    def test_the_connection_ends_before_the_headers(
        self, pair: tuple[StubReplica, StubReplica], name: str, how: str
    ) -> None:
        ledger = Ledger(*pair)
        with Serving(config(both(pair))) as gateway, nothing_left(gateway):
            pair[0].answer_all([["body"], [how]])
            with gateway.connect() as connection:
                headers = {"steelyard-model": name}
                for _ in range(6):
                    ledger.ask(connection, may_retry=name == "safe", headers=headers, body=b"x" * 100)
        ledger.check()
        ends = ledger.count()
        if name == "safe":
            assert ends == {"ok": 6}
        else:
            assert ends["ok"] == 3
            assert all(end.startswith("error 502") for end in ends if end != "ok")

    @pytest.mark.parametrize("how", ["close", "reset"])
    def test_on_a_connection_that_was_used_before(self, pair: tuple[StubReplica, StubReplica], how: str) -> None:
        """The replica had the request and left: that it could be a keep-alive race is no reason to run it twice."""
        ledger = Ledger(*pair)
        with Serving(config(both(pair), timeouts={"replica_idle": "20s"})) as gateway:
            headers = {"steelyard-model": "unsafe"}
            with gateway.connect() as connection:
                for _ in range(4):
                    ledger.ask(connection, may_retry=False, headers=headers, body=b"x" * 100)
                for stub in pair:
                    stub.answer_all([["body"], [how]])
                ends = [ledger.ask(connection, may_retry=False, headers=headers, body=b"x" * 100) for _ in range(2)]
        ledger.check()
        assert all(end.startswith("error 502") for end in ends), ends

    def test_a_body_is_sent_again_whole(self, pair: tuple[StubReplica, StubReplica]) -> None:
        """What the second replica gets is what the client sent, however it was framed."""
        body = bytes(range(256)) * 2000
        digest = hashlib.sha256(body).hexdigest()
        with Serving(config(both(pair))) as gateway, nothing_left(gateway), gateway.connect() as connection:
            pair[0].answer_all([["body"], ["close"]])
            for options in ({"body": body}, {"chunks": [body[:7], body[7:100_000], body[100_000:]]}) * 2:
                id = new_id()
                response = connection.ask("POST", id=id, headers={"steelyard-model": "safe"}, **options)
                assert response.headers["steelyard-replica"] == "b"
                assert pair[1].wait("body", id=id)["sha"] == digest

    @pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
    def test_a_body_too_large_to_keep(self, pair: tuple[StubReplica, StubReplica], chunked: bool) -> None:
        """Streamed, so it cannot be sent again once a part is gone; but a connection refused takes nothing away."""
        ledger, body = Ledger(*pair), bytes(range(256)) * 2000
        digest = hashlib.sha256(body).hexdigest()
        options = {"chunks": [body[:100_000], body[100_000:]]} if chunked else {"body": body}
        with Serving(config(both(pair), limits={"replay_bytes": "1KiB"})) as gateway, nothing_left(gateway):
            headers = {"steelyard-model": "safe"}
            pair[0].answer_all([["body"], ["close"]])
            with gateway.connect() as connection:
                ends = [ledger.ask(connection, may_retry=False, headers=headers, **options) for _ in range(4)]
            ledger.check()
            assert sorted(ends)[-2:] == ["ok", "ok"]
            assert all(end.startswith("error 502") for end in sorted(ends)[:2])
            pair[0].kill()
            with gateway.connect() as connection:
                ends = [ledger.ask(connection, may_retry=False, headers=headers, **options) for _ in range(4)]
        ledger.check()
        assert ends == ["ok"] * 4
        assert {event["sha"] for event in pair[1].of("body")} == {digest}

    def test_half_a_head_is_no_head(self, pair: tuple[StubReplica, StubReplica]) -> None:
        with Serving(config(both(pair))) as gateway, nothing_left(gateway):
            response = gateway.ask(
                headers={"steelyard-model": "only a"}, script=scripts.raw("HTTP/1.1 200 OK\r\ncontent-le", ["close"])
            )
            assert response.status == 502
            assert response.headers["steelyard-reason"]


class TestMidStream:
    """After the first byte there is no other try: the client must see that the answer is not whole."""

    BROKEN = {  # noqa: RUF012
        "length": "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\ndata: half",
        "chunked": "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + scripts.chunk("data: half"),
        "in a chunk": "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n64\r\ndata: half",
        "before the last chunk's end": "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\ndata: half\r\n0\r\n",
        "in a trailer": "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\ndata: half\r\n0\r\nx-a: b\r\n",
    }

    @pytest.fixture(scope="class")
    @classmethod
    def fleet(cls) -> Iterator[tuple[Serving, list[StubReplica]]]:
        with (
            StubReplica("a") as a,
            StubReplica("b") as b,
            Serving(config(both((a, b)))) as gateway,
            nothing_left(gateway),
        ):
            yield gateway, [a, b]

    @pytest.mark.parametrize("version", ["1.1", "1.0"])
    @pytest.mark.parametrize("how", ["close", "reset"])
    @pytest.mark.parametrize("kind", BROKEN)
    def test_the_connection_ends(
        self, fleet: tuple[Serving, list[StubReplica]], kind: str, how: str, version: str
    ) -> None:
        gateway, stubs = fleet
        id, gate = new_id(), new_id("break")
        script = scripts.raw(self.BROKEN[kind], ["gate", gate], [how])
        with gateway.connect() as connection:
            headers = {"steelyard-model": "safe"}
            connection.send(request("POST", id=id, headers=headers, script=script, version=version))
            response = connection.begin()
            connection.read_body(response, b"data: half")
            for stub in stubs:
                stub.open(gate)
            with pytest.raises(Truncated):
                connection.finish(response)
        assert seen_by(stubs, id) == 1, "it was tried again after the client had seen a part"

    def test_reset_in_an_answer_that_ends_with_the_connection(self, fleet: tuple[Serving, list[StubReplica]]) -> None:
        gateway, stubs = fleet
        id, gate = new_id(), new_id("break")
        script = scripts.raw("HTTP/1.1 200 OK\r\n\r\ndata: half", ["gate", gate], ["reset"])
        with gateway.connect() as connection:
            connection.send(request("POST", id=id, headers={"steelyard-model": "safe"}, script=script))
            response = connection.begin()
            connection.read_body(response, b"data: half")
            for stub in stubs:
                stub.open(gate)
            with pytest.raises(Truncated):
                connection.finish(response)
        assert seen_by(stubs, id) == 1

    @pytest.mark.smoke
    def test_killed_while_streaming_to_many(self, pair: tuple[StubReplica, StubReplica]) -> None:
        with Serving(config(both(pair))) as gateway, nothing_left(gateway):
            connections = [gateway.connect() for _ in range(20)]
            ids = [new_id() for _ in connections]
            responses = []
            for id, connection in zip(ids, connections, strict=True):
                headers = {"steelyard-model": "safe"}
                connection.send(request("POST", id=id, headers=headers, script=scripts.endless("later")))
                responses.append(connection.begin())
                connection.read_body(responses[-1], b"data: 0\n\n")
            pair[0].kill()
            cut, on = 0, 0
            for id, connection, response in zip(ids, connections, responses, strict=True):
                if pair[0].of("request", id=id):
                    with pytest.raises(Truncated):
                        connection.finish(response)
                    cut += 1
                else:
                    assert connection.quiet(0), "a stream of the other replica was disturbed"
                    on += 1
                connection.close()
            assert (cut, on) == (10, 10)
        assert [seen_by(pair, id) for id in ids] == [1] * 20

    def test_a_stream_that_never_ends_is_cut_at_last(self, pair: tuple[StubReplica, StubReplica]) -> None:
        """`total` is for the whole of a request, however lively it is."""
        drips = [["send", scripts.chunk("data: x\n\n")], ["sleep", 0.05]] * 400

        def cut() -> bool:
            """False: this machine was so slow that not even the answer's head came in time."""
            id = new_id()
            with gateway.connect() as connection:
                connection.send(request("POST", id=id, headers={"steelyard-model": "only a"}))
                try:
                    assert connection.response().status == 504, "it ends as if it were whole"
                except Truncated:
                    pair[0].wait_left(id)
                    return True
            return False

        with Serving(config(both(pair), timeouts={"total": "1s"})) as gateway, nothing_left(gateway):
            pair[0].answer_all([["body"], ["send", scripts.SSE_HEAD], *drips, ["send", "0\r\n\r\n"]])
            wait_until(cut, "never a quiet moment")

    @pytest.mark.smoke
    def test_a_stream_that_stalls_is_cut(self, pair: tuple[StubReplica, StubReplica]) -> None:
        id = new_id()
        with Serving(config(both(pair), timeouts={"stream_idle": "500ms"})) as gateway, nothing_left(gateway):
            with gateway.connect() as connection:
                connection.send(
                    request("POST", id=id, headers={"steelyard-model": "only a"}, script=scripts.endless("later"))
                )
                with pytest.raises(Truncated):
                    connection.response()
            pair[0].wait_left(id)


class TestFrozen:
    """SIGSTOP: the kernel still takes connections and bytes, nobody answers."""

    @pytest.mark.smoke
    @pytest.mark.parametrize("name", ["safe", "unsafe"])
    def test_failover_or_timeout(self, pair: tuple[StubReplica, StubReplica], name: str) -> None:
        ledger = Ledger(*pair)
        timeouts = {"first_byte": "2s", "connect": "2s"}  # far more than one that is well needs
        with Serving(config(both(pair), timeouts=timeouts)) as gateway, nothing_left(gateway):
            pair[0].freeze()
            with gateway.connect() as connection:
                for _ in range(2):  # one for each
                    headers = {"steelyard-model": name, "steelyard-timeout-ms": "20000"}
                    ledger.ask(connection, may_retry=name == "safe", headers=headers)
            pair[0].thaw()
        ledger.check()
        if name == "safe":
            assert ledger.count() == {"ok": 2}
        else:
            assert ledger.count()["ok"] == 1
            assert all(end.startswith("error 504") for end in ledger.count() if end != "ok")

    def test_inside_the_deadline_of_the_client(self, pair: tuple[StubReplica, StubReplica]) -> None:
        with Serving(config(both(pair))) as gateway, nothing_left(gateway):
            pair[0].freeze()
            headers = {"steelyard-model": "only a", "steelyard-timeout-ms": "500"}
            response = gateway.ask(headers=headers)  # the client's own patience is 30 s, first_byte is 300 s
            assert response.status in (503, 504)
            assert response.headers["steelyard-reason"]
            pair[0].thaw()

    def test_a_frozen_replica_gets_out_of_the_way(self) -> None:
        """With ejection: after some failures in a row requests no longer wait for it."""
        with StubReplica("a") as a, StubReplica("b") as b, StubReplica("c") as c:
            ledger = Ledger(a, b, c)
            how = {"policy": "round_robin", "idempotent": True, "retry": {"initial_tokens": 20, "max_tokens": 50}}
            models = {
                "*": model(
                    a,
                    b,
                    c,
                    **how,
                    outlier_detection={
                        "consecutive_failures": 2,
                        "base_ejection_time": "10m",
                        "max_ejection_time": "10m",
                    },
                )
            }
            with Serving(config(models, timeouts={"first_byte": "1s"})) as gateway:
                a.freeze()
                with gateway.connect() as connection:
                    for _ in range(40):
                        ledger.ask(connection, may_retry=True)
                a.thaw()
                ledger.check()
                assert ledger.count() == {"ok": 40}
                assert len(a.ids()) < 5


class TestUnreachable:
    @pytest.mark.smoke
    def test_refused(self, pair: tuple[StubReplica, StubReplica]) -> None:
        """Nothing was sent, so even what must not run twice is tried elsewhere."""
        ledger = Ledger(*pair)
        with Serving(config(both(pair))) as gateway, nothing_left(gateway):
            pair[0].kill()
            with gateway.connect() as connection:
                for _ in range(8):
                    ledger.ask(connection, may_retry=False, headers={"steelyard-model": "unsafe"}, body=b"x" * 5000)
        ledger.check()
        assert ledger.count() == {"ok": 8}

    def test_refused_by_all(self, pair: tuple[StubReplica, StubReplica]) -> None:
        with Serving(config(both(pair))) as gateway, nothing_left(gateway):
            for stub in pair:
                stub.kill()
            with gateway.connect() as connection:
                for _ in range(3):
                    response = connection.ask("POST", headers={"steelyard-model": "safe"}, body=b"x")
                    assert failed(response.status), response
                    assert response.headers["steelyard-reason"]
            for stub in pair:
                stub.start()
            for name in ("safe", "only a"):
                assert gateway.ask("POST", headers={"steelyard-model": name}).status == 200

    def test_an_unknown_host(self) -> None:
        with StubReplica("b") as b:
            replicas = [{"id": "a", "url": "http://no-such-host.invalid:80"}, b.config]
            settings = config({"*": {"replicas": replicas, **POLICY}}, timeouts={"connect": "2s"})
            with Serving(settings) as gateway:
                for _ in range(4):
                    assert gateway.ask("POST").headers["steelyard-replica"] == "b"

    def test_a_missing_unix_socket(self, tmp_path: Path) -> None:
        with StubReplica("b") as b:
            replicas = [{"id": "a", "url": f"unix:{tmp_path}/nobody.sock"}, b.config]
            with Serving(config({"*": {"replicas": replicas, **POLICY}})) as gateway:
                for _ in range(4):
                    assert gateway.ask("POST").headers["steelyard-replica"] == "b"

    def test_lost_syns(self) -> None:
        """A listener with a full backlog drops SYNs, as a host that is gone does."""
        with StubReplica("b") as b, full_backlog() as port:
            ledger = Ledger(b)
            replicas = [{"id": "a", "url": f"http://127.0.0.1:{port}"}, b.config]
            models = {"*": {"replicas": replicas, **POLICY, "idempotent": False}}
            settings = config(models, timeouts={"connect": "1s"})
            with Serving(settings) as gateway, nothing_left(gateway), gateway.connect() as connection:
                for _ in range(4):
                    headers = {"steelyard-timeout-ms": "20000"}
                    ledger.ask(connection, may_retry=False, headers=headers, body=b"x")
            ledger.check()
            assert ledger.count() == {"ok": 4}

    @pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nft", "ip"))),
        reason="needs root, unshare, ip and nft",
    )
    def test_packets_dropped_by_a_firewall(self, tmp_path: Path) -> None:
        """The gateway in a network namespace of its own where a rule drops what goes to one replica."""
        rules = (
            "add table inet t",
            "add chain inet t out '{ type filter hook output priority 0; }'",
            "add rule inet t out tcp dport 9 drop",
        )
        setup = " && ".join(["ip link set lo up", *(f"nft {rule}" for rule in rules)])
        if subprocess.run(["unshare", "-n", "sh", "-c", setup], capture_output=True, check=False).returncode:
            pytest.skip("network namespaces or nft do not work here")
        back, front = tmp_path / "back.sock", tmp_path / "front.sock"
        with StubReplica("b", path=str(back)) as b:
            ledger = Ledger(b)
            replicas = [{"id": "a", "url": "http://127.0.0.1:9"}, b.config]
            settings = config({"*": {"replicas": replicas, **POLICY}}, f"unix:{front}", timeouts={"connect": "1s"})
            wrapper = ["unshare", "-n", "sh", "-c", f'{setup} && exec "$@"', "sh"]
            with Serving(settings, wrapper=wrapper) as gateway, gateway.connect() as connection:
                for _ in range(4):
                    ledger.ask(connection, may_retry=False, headers={"steelyard-timeout-ms": "20000"})
            ledger.check()
            assert ledger.count() == {"ok": 4}


@contextlib.contextmanager
def full_backlog() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(8):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        try:
            yield listener.getsockname()[1]
        finally:
            for filler in fillers:
                filler.close()


def kept(stub: StubReplica, *states: str) -> bool:
    """Are there connections to the replica in one of these states?"""
    return any(row[1] == stub.port and row[2] in states for row in tcp_sockets())


class TestKeepAliveRace:
    """The replica closes an unused connection just as the gateway sends on it."""

    @pytest.mark.parametrize("how", ["close", "reset"])
    def test_no_502(self, how: str) -> None:
        with StubReplica("a") as stub:
            ledger = Ledger(stub)
            models = {
                "*": model(
                    stub,
                    idempotent=True,
                    outlier_detection={"enabled": False},
                    retry={"initial_tokens": 30, "max_tokens": 30},
                )
            }
            with Serving(config(models, timeouts={"replica_idle": "30s"})) as gateway:
                stub.answer_all([["body"], ["reply"], ["doom", how]])
                with gateway.connect() as connection:
                    for _ in range(20):
                        ledger.ask(connection, may_retry=True, body=b"x")
                ledger.check()
                assert ledger.count() == {"ok": 20}
                assert stub.of("doomed"), "connections were not used again, so nothing was tested"

    @pytest.mark.smoke
    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_closed_by_the_replica_while_unused(self, method: str) -> None:
        """What the gateway has seen before it sends costs nobody anything, not even what must not run twice."""
        with StubReplica("a") as stub:
            ledger = Ledger(stub)
            models = {"*": model(stub, idempotent=False, outlier_detection={"enabled": False})}
            with Serving(config(models, timeouts={"replica_idle": "30s"})) as gateway, gateway.connect() as connection:
                for _ in range(20):
                    ledger.ask(connection, may_retry=False, method=method)
                    stub.close_idle()
                    wait_until(lambda: not kept(stub, ESTABLISHED, CLOSE_WAIT), "the gateway keeps what is closed")
                ledger.check()
                assert ledger.count() == {"ok": 20}

    def test_closed_as_it_is_used(self) -> None:
        """The end of the connection is there before the request is sent on it: it never ran, so it may run elsewhere.

        The worker is stopped meanwhile, so that it finds both at once: the client's request first, then the end.
        """
        with StubReplica("a") as stub:
            ledger = Ledger(stub)
            models = {"*": model(stub, idempotent=False, outlier_detection={"enabled": False})}
            with Serving(config(models, timeouts={"replica_idle": "30s"})) as gateway, gateway.connect() as connection:
                for _ in range(5):
                    assert ledger.ask(connection, may_retry=False) == "ok"
                    id = ledger.new(may_retry=False)
                    os.kill(gateway.worker, signal.SIGSTOP)
                    try:
                        connection.send(request("POST", id=id))
                        stub.close_idle()
                        wait_until(lambda: not kept(stub, ESTABLISHED), "the replica did not close")
                    finally:
                        os.kill(gateway.worker, signal.SIGCONT)
                    ledger.tell(id, connection.response("POST"))
                ledger.check()
                assert ledger.count() == {"ok": 10}

    def test_under_load(self) -> None:
        """Connections closed at any moment between requests."""
        with StubReplica("a") as stub:
            ledger, over = Ledger(stub), threading.Event()
            models = {"*": model(stub, idempotent=True, outlier_detection={"enabled": False}, retry={"budget": 1})}

            def client() -> None:
                with gateway.connect() as connection:
                    while not over.is_set():
                        ledger.ask(connection, may_retry=True, method="GET")

            script = [["body"], ["reply"], ["doom", "close"]]
            with Serving(config(models, timeouts={"replica_idle": "30s"})) as gateway:
                clients = [threading.Thread(target=client) for _ in range(4)]
                for thread in clients:
                    thread.start()
                for number in range(40):
                    stub.answer_all(script if number % 2 else None)
                over.set()
                for thread in clients:
                    thread.join(30)
            ledger.check()
            assert set(ledger.count()) == {"ok"}
