"""Other real clients: `httpx2` (what `openai` is built on) and `websockets`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import openai
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from ..harness.waiting import WAIT_TIMEOUT_SECONDS, wait_until
from .chats import KEY, answer, ask
from .processes import Program

pytestmark = pytest.mark.xdist_group("real")
JSON = {"content-type": "application/json"}


def test_httpx_reads_a_stream_of_events_line_by_line(gateway: Program) -> None:
    said: list[str] = []
    with (
        httpx2.Client(base_url=gateway.url, timeout=30) as client,
        client.stream("POST", "/v1/chat/completions", json=ask("events", stream=True, max_tokens=50)) as reply,
    ):
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in reply.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        said.append(json.loads(line.removeprefix("data: "))["choices"][0]["delta"]["content"] or "")
    assert "".join(said) == answer("events", 50)


def test_a_connection_serves_on_after_a_stream(gateway: Program) -> None:
    """With httpx, because the openai client closes its connection itself at `[DONE]`."""
    addresses = set()
    with httpx2.Client(base_url=gateway.url, timeout=30) as client:
        for _ in range(5):
            with client.stream("POST", "/v1/chat/completions", json=ask("streams", stream=True)) as reply:
                addresses.add(reply.extensions["network_stream"].get_extra_info("client_addr"))
                assert reply.read().endswith(b"data: [DONE]\n\n")
    assert len(addresses) == 1


def test_httpx_sends_a_body_of_unknown_length(gateway: Program) -> None:
    body = json.dumps(ask("in pieces", max_tokens=5)).encode()

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(body), 7):
            yield body[start : start + 7]

    with httpx2.Client(base_url=gateway.url, timeout=30) as client:
        reply = client.post("/v1/chat/completions", content=pieces(), headers=JSON)
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"] == answer("in pieces", 5)


def test_async_httpx_many_at_once(gateway: Program) -> None:
    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(body), 20):
            yield body[start : start + 20]
            await asyncio.sleep(0)

    async def one(client: httpx2.AsyncClient, number: int) -> str:
        body = json.dumps(ask(f"httpx {number}", max_tokens=5)).encode()
        reply = await client.post("/v1/chat/completions", content=pieces(body), headers=JSON)
        content: str = reply.json()["choices"][0]["message"]["content"]
        return content

    async def all_of_them() -> list[str]:
        async with httpx2.AsyncClient(base_url=gateway.url, timeout=30) as client:
            return await asyncio.gather(*(one(client, number) for number in range(30)))

    assert asyncio.run(all_of_them()) == [answer(f"httpx {number}", 5) for number in range(30)]


def events(gateway: Program, model: str = "echo") -> ClientConnection:
    """A websocket to llm-katan's dashboard."""
    url = f"ws://127.0.0.1:{gateway.port}/ws/events"
    return connect(url, proxy=None, additional_headers={"steelyard-model": model})


def heard(socket: ClientConnection, text: str) -> dict[str, Any]:
    """What it tells of the chat that asked this. It may still tell of those of other tests."""
    while True:
        event: dict[str, Any] = json.loads(socket.recv(timeout=WAIT_TIMEOUT_SECONDS))
        if event["request_body"]["messages"][0]["content"] == text:
            return event


def test_a_closed_websocket_gives_its_place_back(gateway: Program) -> None:
    """`one-socket` takes one at a time and lets nobody wait."""

    def again() -> bool:
        try:
            with events(gateway, "one-socket") as socket:
                socket.send("a word")
        except InvalidStatus:
            return False
        return True

    for _ in range(3):
        wait_until(again, "room for a websocket")


def test_a_websocket_goes_through(gateway: Program) -> None:
    """llm-katan tells its dashboard of every request it answers: the tunnel carries what a chat causes."""
    with (
        events(gateway) as socket,
        openai.OpenAI(base_url=gateway.url + "/v1", api_key=KEY, max_retries=0, timeout=30) as client,
    ):
        for number in range(3):
            text = f"seen through the tunnel {number}"
            client.chat.completions.create(**ask(text, model="echo"))
            assert heard(socket, text)["path"] == "/v1/chat/completions"
            socket.send("a word from the client " + "x" * 100_000)


def test_what_a_replica_hears_of_the_client(gateway: Program) -> None:
    """The same dashboard shows the headers that arrived."""
    with (
        events(gateway) as socket,
        openai.OpenAI(base_url=gateway.url + "/v1", api_key=KEY, max_retries=0, timeout=30) as client,
    ):
        client.chat.completions.create(**ask("hello there", model="echo"), extra_headers={"x-request-id": "mine-2"})
        headers = heard(socket, "hello there")["request_headers"]
    assert headers["x-request-id"] == "mine-2"
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert headers["x-forwarded-proto"] == "http"
    assert "via" in headers
    assert "traceparent" in headers
    assert headers["authorization"]
