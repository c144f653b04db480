"""/v1/live over real sockets: everybody who follows is told the same, nobody holds anybody up."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from steelyard.config import AdminConfig
from steelyard.control.admin import live_subscribers
from steelyard.control.supervisor.supervisor import Supervisor

from ..driving import WAIT_TIMEOUT_SECONDS, ask, config, run, supervised, until
from .serving import TOKEN, Served, served
from .serving import until as until_true


@asynccontextmanager
async def with_admin(**admin: Any) -> AsyncIterator[Supervisor]:
    made = msgspec.structs.replace(config(2), admin=AdminConfig(**{"listen": "127.0.0.1:0", **admin}))
    async with supervised(made) as supervisor:
        yield supervisor


class Following:
    """One who follows."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def next(self) -> tuple[str, Any]:
        name = ""
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while line := await self.reader.readline():
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    return name, json.loads(line[6:])
        return "", None

    async def state(self) -> Any:
        name, state = await self.next()
        assert name == "state"
        return state


async def follow(supervisor: Supervisor, more: str = "") -> Following:
    address = supervisor.admin_address
    assert address is not None
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=1 << 20)
    writer.write(f"GET /v1/live HTTP/1.1\r\nhost: localhost\r\n{more}\r\n".encode())
    return Following(reader, writer)


def test_history_then_the_state_at_once_and_again() -> None:
    async def work() -> None:
        async with with_admin() as supervisor:
            one = await follow(supervisor)
            name, history = await one.next()
            assert (name, list(history)) == ("history", ["samples", "stored"])
            first = await one.state()
            assert first["workers"] in (1, 2)
            assert [m["model"] for m in first["models"]] == ["m"]
            assert any("not probed" in event["message"] for event in first["events"])
            for _ in range(3):
                await ask(supervisor)
            total, at = 0.0, first["models"][0]["sample"]["uptime"]
            while total < 2.9:
                sample = (await one.state())["models"][0]["sample"]
                total, at = total + sample["rate"] * (sample["uptime"] - at), sample["uptime"]
            assert round(total) == 3
            late = await follow(supervisor)  # who comes later sees what was before
            _, history = await late.next()
            assert len(history["samples"]["m"]) >= 1
            one.writer.close()
            late.writer.close()

    run(work())


def test_all_are_told_what_happened_once() -> None:
    async def work() -> None:
        async with with_admin() as supervisor:
            all_ = [await follow(supervisor) for _ in range(3)]
            for one in all_:
                await one.next()
                await one.state()
            supervisor.fleet.events.record("replica", "a thing happened")
            later = await follow(supervisor)
            await later.next()
            for one in [*all_, later]:
                messages = []
                while not messages:
                    messages = [
                        e["message"] for e in (await one.state())["events"] if e["message"] == "a thing happened"
                    ]
                assert messages == ["a thing happened"]
                assert (await one.state())["events"] == []
            for one in [*all_, later]:
                one.writer.close()
            assert supervisor.admin is not None
            watching = supervisor.admin.watchers
            await until(lambda: not len(watching))
            assert not supervisor.live_feed.followers, "nothing is made for nobody"

    run(work())


def test_they_are_told_that_it_ends_and_do_not_hold_it_up() -> None:
    async def work() -> None:
        async with with_admin() as supervisor:
            one = await follow(supervisor)
            await one.next()
            await one.state()
            assert supervisor.admin is not None
            stopping = asyncio.create_task(supervisor.admin.stop())
            while (await one.next())[0]:
                pass
            await stopping
            one.writer.close()

    run(work())


def test_a_token_is_needed_where_one_is(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKEN)

    async def work() -> None:
        async with with_admin(token_file=str(tmp_path / "tokens")) as supervisor:
            stranger = await follow(supervisor)
            assert b" 401 " in await stranger.reader.readline()
            stranger.writer.close()
            friend = await follow(supervisor, f"authorization: Bearer {TOKEN}\r\n")
            assert (await friend.next())[0] == "history"
            friend.writer.close()

    run(work())


def test_who_does_not_read_is_dropped(admin: Served, monkeypatch: Any) -> None:
    admin.operations.live_feed.events.record("replica", "x" * 300_000)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((admin.server.address.host, admin.server.address.port))
        slow.sendall(b"GET /v1/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        until_true(lambda: len(admin.server.watchers) == 1)

        def beat() -> bool:
            admin.operations.live_feed.events.record("replica", "x" * 300_000)
            admin.do(admin.server.watchers.send_update)
            return not len(admin.server.watchers)

        until_true(beat)
        until_true(lambda: not admin.server.state.connections)


def test_there_is_room_for_so_many(admin: Served, monkeypatch: Any) -> None:
    monkeypatch.setattr(live_subscribers, "MAX_SUBSCRIBERS", 1)
    with httpx.stream("GET", f"{admin.url}/v1/live", trust_env=False, timeout=WAIT_TIMEOUT_SECONDS) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        refused = admin.http.get("/v1/live")
        assert refused.status_code == 503
        assert refused.json()["error"]["message"] == "1 subscribers already; no more are accepted"
        assert admin.http.head("/v1/live").status_code == 200
    until_true(lambda: not len(admin.server.watchers))


def test_one_look(admin: Served) -> None:
    assert [m["model"] for m in admin.http.get("/v1/live/latest").json()["models"]] == ["llama", "org/mœdel:7b.1"]
    assert admin.http.get("/v1/slo").json() == {"slo": []}


def test_a_stop_with_somebody_who_does_not_read() -> None:
    with served() as admin, socket.socket() as slow:
        admin.operations.live_feed.events.record("replica", "x" * 3_000_000)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((admin.server.address.host, admin.server.address.port))
        slow.sendall(b"GET /v1/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        until_true(lambda: len(admin.server.watchers) == 1)
