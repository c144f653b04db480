"""A replica and its gateway, over real sockets: told at the start, told again, told at the end; and patient."""

from __future__ import annotations

import asyncio
import logging
import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from steelyard.replica import ReplicaAgent
from steelyard.replica.registration.gateway_client import GatewayClient, GatewayUnreachableError

from ...harness.processes import free_port
from ...harness.waiting import wait_until
from ..fake_gateway import TOKEN, FakeGateway, gateway
from ..talking import Talk, ask, run
from ..test_middleware import hello


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with gateway() as found:
        yield found


def begun(fake: FakeGateway | str, **options: Any) -> ReplicaAgent:
    """An agent whose app had its first event."""
    url = fake if isinstance(fake, str) else fake.url
    agent = ReplicaAgent("a/b model", **{"gateway": url, "url": "http://127.0.0.1:8001", "drain_idle": 0.0, **options})
    agent.begin()
    return agent


def test_it_registers_while_loading_with_all_that_is_known(fake: FakeGateway) -> None:
    agent = begun(fake, id="r1/x", weight=2.5, zone="ward-a", device="node1/gpu0", lease=7.0)
    wait_until(lambda: fake.leases, "a lease")
    assert fake.paths[0] == "/v1/models/a%2Fb%20model/leases/r1%2Fx"
    assert fake.leases["a/b model", "r1/x"] == {
        "url": "http://127.0.0.1:8001",
        "seconds": 7.0,
        "instance": agent.instance,
        "weight": 2.5,
        "zone": "ward-a",
        "device": "node1/gpu0",
        "ready": "/steelyard/ready",
    }
    assert agent.state == "loading"
    assert agent.drain()


def test_it_renews_and_withdraws(fake: FakeGateway) -> None:
    agent = begun(fake)
    wait_until(lambda: fake.count("PUT") >= 3, "renewals")
    assert list(fake.leases) == [("a/b model", "127.0.0.1:8001")]
    assert agent.drain()
    assert fake.leases == {}
    assert fake.heard[-1].method == "DELETE"
    assert fake.heard[-1].instance == agent.instance
    puts = fake.count("PUT")
    agent.ready()
    assert agent.state == "draining"  # for good
    assert fake.count("PUT") == puts


def test_it_waits_until_the_gateway_says_that_it_sends_no_more(fake: FakeGateway) -> None:
    agent = begun(fake, deregistration_delay=1000.0)
    wait_until(lambda: fake.leases, "a lease")
    fake.slow.clear()
    ended = threading.Thread(target=agent.drain)
    ended.start()
    wait_until(lambda: fake.count("DELETE") == 1, "the lease to be given up")
    assert ended.is_alive()
    fake.slow.set()
    ended.join(20)
    assert not ended.is_alive()


def test_it_survives_a_gateway_that_is_away(fake: FakeGateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "steelyard.replica")
    fake.stop()
    agent = begun(fake)
    wait_until(lambda: "cannot be reached" in caplog.text, "a word about it")
    fake.start()
    wait_until(lambda: fake.leases, "a lease")
    fake.stop()
    fake.leases.clear()
    wait_until(lambda: caplog.text.count("cannot be reached") == 2, "a word about it")
    fake.start()
    wait_until(lambda: fake.leases, "a lease again")
    assert agent.drain()
    said = [record.getMessage() for record in caplog.records if "cannot be reached" in record.getMessage()]
    assert len(said) == 2  # once each time, not once a try
    fake.stop()
    fake.start()


def test_with_a_gateway_that_is_gone_it_still_ends(fake: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.replica.registration.registrar.WITHDRAW_TIMEOUT_SECONDS", 0.3)
    agent = begun(fake, deregistration_delay=0.2)
    wait_until(lambda: fake.leases, "a lease")
    fake.stop()
    assert agent.drain()
    fake.start()


def test_several_gateways_are_all_told(fake: FakeGateway) -> None:
    with gateway() as other:
        agent = begun("", gateway=[fake.url, other.url, f"http://127.0.0.1:{free_port()}"], deregistration_delay=0.2)
        wait_until(lambda: fake.leases and other.leases, "two leases")
        assert agent.drain()
        assert (fake.leases, other.leases) == ({}, {})


@pytest.mark.parametrize(
    ("refusal", "word"),
    [
        ((422, b'{"error": {"message": "url: 10.9.9.9 is not allowed"}}'), "url: 10.9.9.9 is not allowed"),
        ((409, b'{"error": "it is named in a file"}'), "it is named in a file"),
        ((404, b'{"detail": "no model of that name"}'), "no model of that name"),
        ((400, b"<html>"), "refuses this replica (400)"),
        ((503, b""), "cannot register this replica now (503)"),
    ],
)
def test_a_refusal_is_said_once_in_one_sentence(
    fake: FakeGateway, caplog: pytest.LogCaptureFixture, refusal: tuple[int, bytes], word: str
) -> None:
    fake.refusal = refusal
    agent = begun(fake, deregistration_delay=0.0)
    wait_until(lambda: word in caplog.text, f"a sentence with {word!r}")
    if refusal[0] in (404, 503):
        wait_until(lambda: fake.count("PUT") >= 3, "more tries")
    assert len([r for r in caplog.records if "the gateway" in r.getMessage()]) == 1
    assert agent.drain()


def test_the_token_is_shown_to_the_gateway_and_to_nobody_else(
    fake: FakeGateway, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    fake.token = TOKEN
    wrong = begun(fake, token="not-this-one", deregistration_delay=0.0)
    wait_until(lambda: "does not accept the token" in caplog.text, "a word about it")
    monkeypatch.setenv("STEELYARD_TOKEN", TOKEN)
    right = begun(fake)
    wait_until(lambda: fake.leases, "a lease")
    for agent in (wrong, right):
        agent.drain()
        assert "not-this-one" not in f"{agent!r} {agent.options!r}"
        assert TOKEN not in f"{agent!r} {agent.options!r}"
    assert TOKEN not in caplog.text
    assert "not-this-one" not in caplog.text


def test_without_a_url_the_first_request_tells_it(fake: FakeGateway) -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=fake.url, drain_idle=0.0)
        await ask(agent.wrap(hello), "/steelyard/ready", "GET")
        await asyncio.to_thread(wait_until, lambda: fake.leases, "a lease")
        assert fake.leases["m", "127.0.0.1:8001"]["url"] == "http://127.0.0.1:8001"
        await asyncio.to_thread(agent.drain)

    run(story())


def test_a_server_that_ends_by_itself_gives_up_its_lease(fake: FakeGateway) -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=fake.url, url="http://127.0.0.1:8001")

        async def app(given: Any, receive: Any, send: Any) -> None:
            while True:
                kind = (await receive())["type"]
                await send({"type": f"{kind}.complete"})
                if kind == "lifespan.shutdown":
                    return

        server = Talk(agent.wrap(app), {"type": "lifespan"})
        server.inbox.put_nowait({"type": "lifespan.startup"})
        await asyncio.to_thread(wait_until, lambda: fake.leases, "a lease")
        first = agent.instance
        server.inbox.put_nowait({"type": "lifespan.shutdown"})
        await server.end()
        assert [message["type"] for message in server.got] == [
            "lifespan.startup.complete",
            "lifespan.shutdown.complete",
        ]
        assert fake.leases == {}
        assert agent.state == "draining"
        agent.begin()  # the same app again, in the same process
        assert agent.state == "loading"
        assert agent.instance != first
        await asyncio.to_thread(agent.drain)

    run(story())


def test_a_gateway_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    got: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            got.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))  # or the client may find it closed while it writes
            self.send_response(200)
            self.send_header("content-length", "13")
            self.end_headers()
            self.wfile.write(b'{"seconds":9}')

        def log_message(self, *args: Any) -> None:
            pass

        def address_string(self) -> str:
            return "unix"

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        reply = GatewayClient(f"unix:{path}").announce("m", "r", {})
        server.shutdown()
    assert (reply.status, reply.lease_seconds, got) == (200, 9.0, ["/v1/models/m/leases/r"])


def test_what_is_no_gateway_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(GatewayUnreachableError, match=r"no answer in 0\.2 s"):
            GatewayClient(f"http://127.0.0.1:{port}", timeout=0.2).announce("m", "r", {})
    with pytest.raises(GatewayUnreachableError, match="refused"):
        GatewayClient(f"http://127.0.0.1:{port}").withdraw("m", "r", "i")
    with pytest.raises(GatewayUnreachableError):
        GatewayClient("http://no-such-host.invalid:9080").withdraw("m", "r", "i")


def test_what_speaks_something_else_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as odd:

        def answer() -> None:
            link, _ = odd.accept()
            with link:
                link.recv(1000)
                link.sendall(b"SSH-2.0-nothing\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(GatewayUnreachableError, match="not an HTTP response"):
            GatewayClient(f"http://127.0.0.1:{odd.getsockname()[1]}").withdraw("m", "r", "i")
        thread.join()
