"""Real servers, real signals: what runs is finished, what comes late is served, and then the process is gone."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT, SIGTERM
from time import sleep
from typing import Any

import pytest
import uvicorn
import websockets

from steelyard.replica import ReplicaAgent

from ..harness.processes import free_port
from ..harness.waiting import wait_until
from ..real.processes import Program
from .fake_gateway import gateway
from .programs import EXAMPLES, Held, answers, demo, ends, get, lines, load, running, tell
from .test_middleware import hello


class Clients:
    """Each sends one request after the other on a connection that it keeps, while `wanted` says so.

    Who holds `sending` can be sure that nobody has made up its mind to send and has not sent yet.
    """

    def __init__(self, program: Program, wanted: Callable[[], bool], sending: threading.Lock, number: int = 8) -> None:
        self.statuses: list[int] = []
        self._sending = sending
        self._program = program
        self._wanted = wanted
        self._threads = [threading.Thread(target=self._send, args=(index,)) for index in range(number)]
        for thread in self._threads:
            thread.start()

    def _send(self, index: int) -> None:
        link = http.client.HTTPConnection("127.0.0.1", self._program.port, timeout=30)
        for count in itertools.count():
            try:
                with self._sending:
                    if not self._wanted():
                        break
                    link.request("POST", "/work", b'{"seconds": 0.03}', {"x-request-id": f"{index}-{count}"})
                answer = link.getresponse()
                answer.read()
                self.statuses.append(answer.status)
            except (OSError, http.client.HTTPException):
                self.statuses.append(0)
                return
        link.close()

    def end(self) -> list[int]:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        return self.statuses


def ready(program: Program) -> bool:
    return get(program, "/steelyard/ready")[0] == 200


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_a_signal_under_load_loses_nothing(tmp_path: Path, number: Any) -> None:
    options = ("--load-seconds", 0.3, "--quiet", 3)
    with gateway() as fake, running(demo(tmp_path, "--gateway", fake.url, *options)) as program:
        program.wait()
        key = ("demo", f"127.0.0.1:{program.port}")
        clients = Clients(program, lambda: key in fake.leases, fake.deleting)
        wait_until(lambda: len(clients.statuses) > 50, "some traffic")
        tell(program, number)
        code = ends(program)
        statuses = clients.end()
    assert set(statuses) == {200}
    assert code in (-SIGTERM, -SIGINT, 0, 1, 130)
    assert fake.leases == {}
    seen = lines(program)
    came = [line["id"] for line in seen if line["event"] == "came"]
    whole = [line["id"] for line in seen if line["event"] == "ended" and line["whole"] and line["status"] == 200]
    assert len(came) == len(statuses)
    assert sorted(came) == sorted(whole)
    assert {line["state"] for line in seen if line["event"] == "came"} <= {"ready", "draining"}


def test_without_a_gateway_those_who_probe_have_time_to_notice(tmp_path: Path) -> None:
    with running(demo(tmp_path, "--load-seconds", 0, "--settle", 8)) as program:
        program.wait()
        good, sending = threading.Event(), threading.Lock()
        good.set()

        def probe() -> None:
            while ready(program):
                sleep(0.05)
            with sending:
                good.clear()

        clients = Clients(program, good.is_set, sending, 4)
        prober = threading.Thread(target=probe)
        prober.start()
        wait_until(lambda: len(clients.statuses) > 20, "some traffic")
        tell(program, SIGTERM)
        prober.join(30)
        assert set(clients.end()) == {200}
        assert ends(program) == -SIGTERM


def test_a_long_request_is_finished_and_a_late_one_served(tmp_path: Path) -> None:
    with gateway() as fake, running(demo(tmp_path, "--load-seconds", 0, "--gateway", fake.url)) as program:
        program.wait()
        wait_until(lambda: fake.leases, "a lease")
        long = Held(program, "/work?seconds=0")
        tell(program, SIGTERM)
        wait_until(lambda: fake.count("DELETE"), "the lease to be given up")
        status, body = get(program, "/steelyard/ready")
        assert (status, body["state"]) == (503, "draining")
        assert get(program, "/work?seconds=0", "POST")[0] == 200
        assert long.end() == 200
        assert ends(program) == -SIGTERM


def test_two_interrupts_end_it_at_once(tmp_path: Path) -> None:
    """As uvicorn itself does: the second Ctrl-C cuts off what runs."""
    with running(demo(tmp_path, "--load-seconds", 0, "--grace", 1000)) as program:
        program.wait()
        long = threading.Thread(target=get, args=(program, "/work?seconds=1000", "POST"))
        long.start()
        wait_until(lambda: load(program).get("running") == 1, "the long request to begin")
        tell(program, SIGINT)
        wait_until(lambda: load(program).get("state") == "draining", "the drain to begin")
        tell(program, SIGINT)
        ends(program)
        long.join(30)
        assert not long.is_alive()


def test_a_second_sigterm_does_not_wait_for_the_drain(tmp_path: Path) -> None:
    with running(demo(tmp_path, "--load-seconds", 0, "--grace", 1000, "--settle", 1000)) as program:
        program.wait()
        tell(program, SIGTERM)
        wait_until(lambda: load(program).get("state") == "draining", "the drain to begin")
        tell(program, SIGTERM)
        assert ends(program) == -SIGTERM


def test_after_the_grace_the_server_has_it(tmp_path: Path) -> None:
    """Uvicorn still waits for what runs; it only takes nothing new."""
    with running(demo(tmp_path, "--load-seconds", 0, "--grace", 0.3, "--settle", 0)) as program:
        program.wait()
        long = Held(program, "/work?seconds=0")
        tell(program, SIGTERM)
        wait_until(lambda: get(program, "/steelyard/live")[0] == 0, "the port to close")
        assert long.end() == 200
        assert ends(program) == -SIGTERM
    assert "1 requests still in flight after the drain timeout" in program.log_tail()


def test_a_replica_that_is_still_loading_leaves_too(tmp_path: Path) -> None:
    with gateway() as fake, running(demo(tmp_path, "--load-seconds", 1000, "--gateway", fake.url)) as program:
        wait_until(lambda: fake.leases, "a lease while it loads")
        answers(program)
        assert get(program, "/work", "POST")[1]["error"]["code"] == "loading"
        tell(program, SIGTERM)
        assert ends(program) == -SIGTERM
        assert fake.leases == {}
    assert [line["state"] for line in lines(program) if line["event"] == "came"] == ["loading"]


def test_a_restart_is_another_instance_under_the_same_name(tmp_path: Path) -> None:
    with gateway() as fake:
        program = demo(tmp_path, "--load-seconds", 0, "--gateway", fake.url)
        instances = []
        for _ in range(2):
            with running(program):
                program.wait()
                wait_until(lambda: fake.leases, "a lease")
                instances.append(fake.leases["demo", f"127.0.0.1:{program.port}"]["instance"])
            fake.leases.clear()
    assert len(set(instances)) == 2


@pytest.mark.parametrize("options", [[], ["--lifespan", "off"], ["--loop", "asyncio"]])
def test_under_the_command_of_uvicorn(tmp_path: Path, options: list[str]) -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "starlette_app:app", "--port", str(port)]
    with gateway() as fake:
        environment = {"LOAD_SECONDS": "0.2", "STEELYARD_GATEWAY": fake.url}
        program = Program("starlette", [*command, *options], port, tmp_path, "/steelyard/live", environment)
        with running(program):
            program.wait()
            if "off" in options:  # then nothing loads the model, because the example does that in its lifespan
                assert get(program, "/steelyard/ready")[0] == 503
            else:
                wait_until(lambda: ready(program), "the model")
                body = json.dumps({"a": "heavy rain", "b": "rain", "seconds": 0.2}).encode()
                assert 0 < get(program, "/similar", "POST", body)[1]["similarity"] < 1
            wait_until(lambda: fake.leases, "a lease, at the address of the first request")
            tell(program, SIGTERM)
            assert ends(program) == -SIGTERM
            assert fake.leases == {}


def test_where_signals_cannot_be_had_there_is_drain() -> None:
    """A server in a thread: Python gives signals to the main one only."""
    with gateway() as fake:
        port = free_port()
        agent = ReplicaAgent("m", gateway=fake.url, url=f"http://127.0.0.1:{port}", drain_idle=0.1)
        server = uvicorn.Server(uvicorn.Config(agent.wrap(hello), port=port, log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            wait_until(lambda: fake.leases, "a lease")
            agent.ready()
            assert agent.drain() is True
            assert fake.leases == {}
        finally:
            server.should_exit = True
            thread.join(30)
        assert not thread.is_alive()


def serve(agent: ReplicaAgent, app: Any) -> tuple[uvicorn.Server, asyncio.Task[None], int]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(agent.wrap(app), port=port, log_level="error", lifespan="off"))
    return server, asyncio.ensure_future(server._serve()), port


def test_web_sockets_over_a_real_server() -> None:
    async def echo(given: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            if "text" in message:
                await send({"type": "websocket.send", "text": message["text"]})

    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), drain_idle=0.0, deregistration_delay=0.0)
        server, serving, port = serve(agent, echo)
        while not server.started:
            await asyncio.sleep(0.01)
        with pytest.raises(websockets.InvalidStatus) as problem:
            await websockets.connect(f"ws://127.0.0.1:{port}/chat")
        assert problem.value.response.status_code == 503
        assert problem.value.response.headers["retry-after"] == "1"
        agent.ready()
        async with websockets.connect(f"ws://127.0.0.1:{port}/chat") as socket:
            await socket.send("hello")
            assert await socket.recv() == "hello"
            assert agent.limiter.websockets == 1
            drained = asyncio.ensure_future(asyncio.to_thread(agent.drain))
            await asyncio.sleep(0.1)
            assert not drained.done()
        assert await drained is True
        server.should_exit = True
        await serving

    asyncio.run(asyncio.wait_for(story(), 120))


def test_a_client_that_hangs_up_while_it_waits_is_not_counted_any_more() -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), concurrency=1)
        agent.ready()
        go_on = asyncio.Event()
        called = 0

        async def app(given: Any, receive: Any, send: Any) -> None:
            nonlocal called
            called += 1
            await go_on.wait()
            await hello(given, receive, send)

        server, serving, port = serve(agent, app)
        while not server.started:
            await asyncio.sleep(0.01)
        links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in links:
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi")
        while agent.waiting != 2:
            await asyncio.sleep(0.01)
        waiting = [link for link in links if link is not links[0]]
        waiting[0][1].close()
        while agent.waiting != 1:
            await asyncio.sleep(0.01)
        go_on.set()
        for reader, writer in (links[0], waiting[1]):
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
            writer.close()
        while agent.limiter.present:
            await asyncio.sleep(0.01)
        assert (called, agent.limiter.abandoned, agent.limiter.served) == (2, 1, 2)
        server.should_exit = True
        await serving

    asyncio.run(asyncio.wait_for(story(), 120))
