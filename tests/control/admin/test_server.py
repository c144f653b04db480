from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from steelyard.config import AdminConfig
from steelyard.control.admin.security.access import AccessError
from steelyard.control.admin.server import DEFAULT_LISTEN_ADDRESS, AdminServer
from steelyard.control.errors import ListenError

from ..driving import run
from .fake_operations import FakeOperations
from .serving import TOKEN, WAIT_TIMEOUT_SECONDS, served


async def get(server: AdminServer, path: str = "/v1/models", **options: Any) -> httpx.Response:
    async with asking(server) as client:
        return await client.get(path, **options)


def asking(server: AdminServer) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{server.address}", timeout=WAIT_TIMEOUT_SECONDS, trust_env=False)


def make(operations: FakeOperations | None = None, **admin: Any) -> AdminServer:
    return AdminServer(operations or FakeOperations(), AdminConfig(**{"listen": "127.0.0.1:0", **admin}))


def test_without_an_address_it_is_the_usual_one() -> None:
    assert str(AdminServer(FakeOperations(), AdminConfig()).address) == DEFAULT_LISTEN_ADDRESS


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "[::1]:0"])
def test_it_listens_where_it_is_told_and_says_the_port(listen: str) -> None:
    if "::" in listen and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")

    async def work() -> None:
        server = make(listen=listen)
        await server.start()
        assert server.address.port
        assert (await get(server)).status_code == 200
        await server.stop()
        with pytest.raises(httpx.ConnectError):
            await get(server)

    run(work())


def test_every_address_needs_a_token_and_has_one_port(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKEN)

    async def work() -> None:
        server = make(listen=":0", token_file=str(tmp_path / "tokens"))
        await server.start()
        for host in ("127.0.0.1", "[::1]") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
            async with httpx.AsyncClient(timeout=WAIT_TIMEOUT_SECONDS, trust_env=False) as client:
                answer = await client.get(f"http://{host}:{server.address.port}/v1/models")
            assert answer.status_code == 401
        await server.stop()

    run(work())


def test_an_address_in_use_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        for listen in ("127.0.0.1:0", f"unix:{tmp_path}/admin.sock"):
            first = make(listen=listen)
            await first.start()
            with pytest.raises(ListenError, match=r"in use already|another process listens there already"):
                await make(listen=str(first.address)).start()
            await first.stop()

    run(work())


def test_an_address_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKEN)

    async def work() -> None:
        for listen, reason in (
            ("nowhere.invalid:0", "no host that is known"),
            ("192.0.2.1:0", "no such address"),
            (f"unix:{tmp_path}/no/admin.sock", "no directory"),
        ):
            with pytest.raises(ListenError, match=reason):
                await make(listen=listen, token_file=str(tmp_path / "tokens")).start()

    run(work())


def test_it_can_be_started_again_and_stopped_before_it_is_started() -> None:
    async def work() -> None:
        server = make()
        await server.stop()
        for _ in range(2):
            await server.start()
            assert (await get(server)).status_code == 200
            await server.stop()

    run(work())


def test_it_leaves_signals_alone_and_no_task_behind() -> None:
    async def work() -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        tasks = asyncio.all_tasks()
        server = make()
        await server.start()
        async with asking(server) as client:
            assert (await client.get("/v1/fleet")).status_code == 200
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
            await server.stop()  # while the client keeps its connection
        assert asyncio.all_tasks() == tasks

    run(work())


def test_a_request_in_progress_is_finished_when_it_stops() -> None:
    async def work() -> None:
        operations = FakeOperations()
        operations.slow = asyncio.Event()
        server = make(operations)
        await server.start()
        async with asking(server) as client:
            asked = asyncio.create_task(client.post("/v1/models/llama/replicas/a/drain"))
            await _begun(server)
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(0)
            operations.slow.set()
            assert (await asked).json()["state"] == "draining"
            await stopping

    run(work())


def test_a_request_that_does_not_end_is_cut_off_when_it_stops(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        operations = FakeOperations()
        operations.slow = asyncio.Event()
        server = make(operations)
        await server.start()
        async with asking(server) as client:
            asked = asyncio.create_task(client.post("/v1/models/llama/replicas/a/drain"))
            await _begun(server)
            await server.stop()
            with pytest.raises(httpx.RemoteProtocolError):
                await asked
        assert not server.state.tasks
        assert not server.state.connections

    run(work())
    assert not caplog.records


async def _begun(server: AdminServer) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        while not server.state.tasks:
            await asyncio.sleep(0.01)


def test_a_client_that_left_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with served() as admin:
        where = admin.server.address.host, admin.server.address.port
        head = b"POST /v1/reload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n"
        for data in (head, head + b"{", b"GET /v1/fleet HTTP/1.1\r\nhost: localhost\r\n\r\n", b"GET"):
            with socket.create_connection(where) as made:
                made.sendall(data)
        assert admin.http.get("/v1/models").status_code == 200
    assert not caplog.records


def test_a_new_configuration_is_in_force_at_once(tmp_path: Path) -> None:
    add = {"url": "http://10.0.0.1:9001"}
    with served() as admin:
        assert admin.http.post("/v1/models/llama/replicas", json=add).status_code == 422
        admin.do(lambda: admin.server.follow(AdminConfig(allowed_replicas=("10.0.0.0/8",), max_lease=5.0)))  # type: ignore[arg-type]
        assert admin.http.post("/v1/models/llama/replicas", json=add).status_code == 201
        lease = {"url": "http://10.0.0.2:9001", "seconds": 60}
        assert admin.http.put("/v1/models/llama/leases/b", json=lease).json() == {"seconds": 5.0}
        (tmp_path / "tokens").write_text(TOKEN)
        admin.do(lambda: admin.server.follow(AdminConfig(token_file=str(tmp_path / "tokens"))))
        assert admin.http.get("/v1/models").status_code == 401
        with pytest.raises(AccessError):
            admin.do(lambda: admin.server.follow(AdminConfig(token_file=str(tmp_path / "nothing"))))
        assert admin.http.get("/v1/models").status_code == 401
